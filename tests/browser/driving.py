"""A real browser: Debian's chromium, driven by playwright. Where either is missing, tests are skipped and say so."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def browser() -> Iterator[Any]:
    """A browser for the tests of a module."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def page_at(opened: Any, url: str, **settings: Any) -> Iterator[Any]:
    """The explorer in a tab of its own; any error in its console fails the test when the tab is closed."""
    context = opened.new_context(**settings)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#app[aria-busy=false]", timeout=60_000)
    yield page
    assert faults == []
    context.close()


def state(page: Any, expression: str) -> Any:
    """What an expression of the page's own state is; ``e`` is the explorer."""
    return page.evaluate(f"((e) => {expression})(explorer)")


def until(page: Any, expression: str, seconds: float = 30) -> None:
    """Wait for an expression to hold. Playwright's own waiting evaluates text in the page, which its policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(f"((e) => Boolean({expression}))(explorer)"):
        assert time.monotonic() < end, f"never came true: {expression}"
        page.wait_for_timeout(15)


def press(page: Any, keys: str) -> None:
    """Keys one after another, each once the one before was answered."""
    for key in keys.split():
        before = state(page, "e.milliseconds.length")
        page.keyboard.press(key)
        until(page, f"e.milliseconds.length > {before}")
