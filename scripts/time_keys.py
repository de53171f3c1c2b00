"""How long does the explorer take to answer a key, with two models?

  python scripts/time_keys.py                                       two untrained models of the paper's size
  python scripts/time_keys.py runs/demo/mapwm-r2 runs/demo/rope     two runs
  python scripts/time_keys.py --profile                             and in which functions the time of the page goes

Drives the page in Debian's chromium by arrow keys, once with PyTorch behind it and once with the models in the page. A
key is timed from when the page got it until all is drawn and laid out again. On a busy machine that is mostly waiting,
so the processor time of a key is told as well.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import CDPSession, Page, sync_playwright

from mapformers.explorer.bundle import bundle
from mapformers.explorer.loaded_runs import LoadedRuns, open_runs
from mapformers.explorer.server import Explorer
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run
from screenshots import served

KEYS, WARM = 60, 16
ROUND = ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowDown")
WATCH = """() => {
  explorer.revealsByItself = false;
  const { update, draw } = explorer;
  let read = 0;
  explorer.draw = (app) => { read = performance.now(); draw(app); };
  explorer.update = async function () {
    await update.call(this);
    const drawn = performance.now();
    document.body.offsetHeight;  // lays the page out
    const laid = performance.now();
    answered({ all: laid - pressed, reading: read - pressed, drawing: drawn - read, layout: laid - drawn });
  };
}"""
PRESS = """async (keys) => {
  const times = [];
  for (const key of keys) {
    times.push(await new Promise((resolve) => {
      globalThis.answered = resolve;
      globalThis.pressed = performance.now();
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    }));
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  return times;
}"""
TASKS = ("TaskDuration", "RecalcStyleDuration", "LayoutDuration")


def untrained() -> LoadedRuns:
    """MapWM of rank 2 beside RoPE, as the demo trains them, before training."""
    runs = []
    for name, options in (("mapwm", {"rank": 2}), ("rope", {})):
        config = RunConfig.compose("navigation", name, scale="cpu", **options)
        runs.append(Run(Path("nowhere"), config, config.build_model().eval(), {}, 0))
    return LoadedRuns(tuple(runs))


@contextmanager
def server_page(clock: "Clock", loaded: LoadedRuns) -> Iterator[str]:
    explorer = Explorer(loaded)
    explorer.answers["read"] = clock.watch(explorer.read)
    with served(explorer) as url:
        yield url


@contextmanager
def exported_page(loaded: LoadedRuns) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(bundle(loaded), encoding="utf-8")
        yield path.as_uri()


def press_keys(page: Page, keys: int) -> list[dict[str, float]]:
    """Key after key, each a moment after the one before was answered, as by somebody who looks at the page."""
    times: list[dict[str, float]] = page.evaluate(PRESS, [ROUND[number % len(ROUND)] for number in range(keys)])
    return times


def processor_seconds(watch: CDPSession) -> list[float]:
    """What the main thread of the page has computed so far, and how much of that was styles and layout."""
    found = {metric["name"]: metric["value"] for metric in watch.send("Performance.getMetrics")["metrics"]}
    return [found[task] for task in TASKS]


class Clock:
    """The processor time that a server spends on its answers."""

    seconds = 0.0

    def watch(self, answer: Any) -> Any:
        def timed(asked: Any) -> Any:
            began = time.thread_time()
            try:
                return answer(asked)
            finally:
                self.seconds += time.thread_time() - began

        return timed


def told(times: list[dict[str, float]]) -> str:
    medians = {name: statistics.median(one[name] for one in times) for name in times[0]}
    worst = sorted(one["all"] for one in times)[int(0.9 * len(times))]
    parts = ", ".join(f"{name} {medians[name]:.1f}" for name in ("reading", "drawing", "layout"))
    return f"median {medians['all']:.1f} ms per key ({parts}); 9 of 10 keys within {worst:.1f} ms"


def hottest(profile: dict[str, Any], rows: int = 25) -> str:
    """The functions in which most time was spent, their callees not counted."""
    spent: Counter[str] = Counter()
    names = {}
    for node in profile["nodes"]:
        call = node["callFrame"]
        names[node["id"]] = (
            f"{call['functionName'] or '(no name)'} {call['url'].split('/')[-1][:20]}:{call['lineNumber'] + 1}"
        )
    for node, micros in zip(profile["samples"], profile["timeDeltas"]):
        spent[names[node]] += micros
    return "\n".join(f"  {micros / 1000:8.1f} ms  {name}" for name, micros in spent.most_common(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--keys", type=int, default=KEYS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    loaded = open_runs(asked.runs) if asked.runs else untrained()
    clock = Clock()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for engine, opened in (("server", partial(server_page, clock)), ("exported page", exported_page)):
            with opened(loaded) as url:
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(url)
                page.wait_for_selector("#app[aria-busy=false]")
                page.wait_for_timeout(1500)
                watch = page.context.new_cdp_session(page)
                if asked.profile:
                    watch.send("Profiler.enable")
                    watch.send("Profiler.start")
                watch.send("Performance.enable", {"timeDomain": "threadTicks"})
                page.evaluate(WATCH)
                press_keys(page, WARM)  # the first keys compile
                before = [*processor_seconds(watch), clock.seconds]
                print(f"{engine}: {told(press_keys(page, asked.keys))}", flush=True)
                after = [*processor_seconds(watch), clock.seconds]
                spent = [1000 * (b - a) / asked.keys for a, b in zip(before, after)]
                page_time = "{:.1f} ms in the page (of them styles {:.1f}, layout {:.1f}), {:.1f} ms behind it"
                print(f"  processor time per key: {page_time.format(*spent)}", flush=True)
                if asked.profile:
                    print(hottest(watch.send("Profiler.stop")["profile"]))
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
