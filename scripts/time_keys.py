"""How long does the explorer take to answer a key, with two models?

  python scripts/time_keys.py                                       two untrained models of the paper's size
  python scripts/time_keys.py runs/demo/mapwm-r2 runs/demo/rope     two runs
  python scripts/time_keys.py --profile                             and in which functions the time of the page goes

Drives the page in Debian's chromium by arrow keys, once with PyTorch behind it and once with the models in the page. A
key is timed from when the browser got it until the page is drawn and laid out again.
"""

import argparse
import shutil
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright

from mapformers.explorer.bundle import bundle
from mapformers.explorer.exhibit import Exhibit, open_runs
from mapformers.explorer.server import Explorer, Server
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run

KEYS = 60
ROUND = ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowDown")
WATCH = """() => {
  explorer.revealsByItself = false;
  const { update, draw } = explorer;
  globalThis.times = [];
  let pressed = 0, read = 0;
  addEventListener("keydown", (event) => (pressed = event.timeStamp), true);
  explorer.draw = (app) => { read = performance.now(); draw(app); };
  explorer.update = async function () {
    await update.call(this);
    const drawn = performance.now();
    document.body.offsetHeight;  // lays the page out
    const laid = performance.now();
    times.push({ all: laid - pressed, reading: read - pressed, drawing: drawn - read, layout: laid - drawn });
  };
}"""


def untrained() -> Exhibit:
    """MapWM of rank 2 beside RoPE, as the demo trains them, before training."""
    runs = []
    for name, options in (("mapwm", {"rank": 2}), ("rope", {})):
        config = RunConfig.compose("navigation", name, scale="cpu", **options)
        runs.append(Run(Path("nowhere"), config, config.build_model().eval(), {}, 0))
    return Exhibit(tuple(runs))


@contextmanager
def server_page(exhibit: Exhibit) -> Iterator[str]:
    server = Server(Explorer(exhibit))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def exported_page(exhibit: Exhibit) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(bundle(exhibit), encoding="utf-8")
        yield path.as_uri()


def press_keys(page: Page, keys: int) -> list[dict[str, float]]:
    """Key after key, each once the one before was answered, as by somebody who looks at the page."""
    page.evaluate(WATCH)
    for number in range(keys):
        page.keyboard.press(ROUND[number % len(ROUND)])
        while page.evaluate("times.length") <= number:
            page.wait_for_timeout(5)
        page.wait_for_timeout(30)
    times: list[dict[str, float]] = page.evaluate("times")
    return times[keys // 6 :]  # the first ones compile


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
    exhibit = open_runs(asked.runs) if asked.runs else untrained()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for engine, opened in (("server", server_page), ("exported page", exported_page)):
            with opened(exhibit) as url:
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(url)
                page.wait_for_selector("#app[aria-busy=false]")
                page.wait_for_timeout(1500)
                watch = page.context.new_cdp_session(page)
                if asked.profile:
                    watch.send("Profiler.enable")
                    watch.send("Profiler.start")
                print(f"{engine}: {told(press_keys(page, asked.keys))}", flush=True)
                if asked.profile:
                    print(hottest(watch.send("Profiler.stop")["profile"]))
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
