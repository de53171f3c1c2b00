"""Pictures of the explorer's page and of a report, for the documentation and to be looked at.

  python scripts/screenshots.py navigation=runs/demo/mapwm-r2,runs/demo/rope
  python scripts/screenshots.py family-tree graph --widths 1280 390 --out looked-at
  python scripts/screenshots.py report=runs/demo/mapwm-r2/analysis/report.html

A task without runs shows models before training. Each picture is a PNG of at most 256 colours; a phone's is named so.
"""

import argparse
import io
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from mapformers.explorer.loaded_runs import LoadedRuns, open_runs
from mapformers.explorer.server import Explorer, Server
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run

PHONE = 700  # pixels: what is narrower is called a phone
KEYS = {  # what is pressed before the picture is taken
    "navigation": "ArrowRight ArrowUp ArrowUp ArrowLeft ArrowLeft ArrowDown ArrowDown ArrowRight ArrowRight Space",
    "dyck": "( [ ( ( ( [ ]",
    "family-tree": "1 2 1 Space",
    "graph": "1 2 1 2 Space",
    "selective-copy": "",
    "text": "",
}


def untrained(task: str) -> LoadedRuns:
    config = RunConfig.compose(task, "mapwm", scale="smoke")
    return LoadedRuns((Run(Path("nowhere"), config, config.build_model().eval(), {}, 0),))


@contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """The address of its page, for as long as it is looked at."""
    server = Server(explorer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(browser: Browser, url: str, width: int) -> Iterator[Page]:
    """A page of some width. It must neither be wider than the window nor say anything in the console."""
    page = browser.new_page(viewport={"width": width, "height": 844 if width < PHONE else 900})
    faults: list[str] = []
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(url)
    yield page
    wide = page.evaluate("document.documentElement.scrollWidth")
    if faults or wide > width:
        raise SystemExit(f"{url} at {width} pixels: {wide} pixels wide; {faults}")
    page.close()


def press(page: Page, keys: str) -> None:
    for key in keys.split():
        before = page.evaluate("explorer.milliseconds.length")
        page.keyboard.press(key)
        for _ in range(400):
            if page.evaluate("explorer.milliseconds.length") > before:
                break
            page.wait_for_timeout(15)


def picture_of(page: Page, whole: bool) -> Image.Image:
    page.wait_for_timeout(800)  # the camera comes to rest
    return Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB")


def save(picture: Image.Image, path: Path) -> None:
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size // 1000} kB")


def show_report(browser: Browser, report: str, width: int) -> Image.Image:
    with opened(browser, Path(report).resolve().as_uri(), width) as page:
        if page.locator("iframe.live").count():
            page.frame_locator("iframe.live").locator("#app[aria-busy=false]").wait_for()
        return picture_of(page, True)


def show_task(browser: Browser, task: str, loaded: LoadedRuns, width: int) -> Image.Image:
    with served(Explorer(loaded)) as url, opened(browser, url, width) as page:
        page.wait_for_selector("#app[aria-busy=false]", timeout=60_000)
        if task in ("dyck", "graph", "family-tree"):
            page.click("text=Start over")
        page.evaluate("explorer.revealsByItself = false")
        press(page, KEYS[task])
        return picture_of(page, True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="TASK[=RUN[,RUN2]]")
    parser.add_argument("--widths", nargs="+", type=int, default=[1280])
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--height", type=int, help="cut pictures off below so many pixels")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        flags: dict[str, Any] = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--disable-gpu"]}
        browser = driver.chromium.launch(**flags)
        for what in asked.what:
            task, _, runs = what.partition("=")
            loaded = open_runs([Path(run) for run in runs.split(",")]) if runs and task != "report" else None
            for width in asked.widths:
                if task == "report":
                    picture = show_report(browser, runs, width)
                else:
                    picture = show_task(browser, task, loaded or untrained(task), width)
                if asked.height:
                    picture = picture.crop((0, 0, picture.width, min(asked.height, picture.height)))
                name = ("report" if task == "report" else f"explore-{task}") + ("-phone" if width < PHONE else "")
                save(picture, asked.out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
