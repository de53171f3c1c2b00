"""The report of a run has the model itself in it, which runs from the disk; or it says why not."""

import re

import pytest
from driving import browser

from mapformers.explorer.bundle import bundle
from mapformers.reports.run_page import LARGEST, TOO_LARGE, LiveModel, run_page
from untrained import untrained_runs


@pytest.fixture(scope="module")
def live():
    return bundle(untrained_runs("navigation"), {})


def test_the_model_in_the_report_walks(live, tmp_path):
    path, faults = tmp_path / "report.html", []
    path.write_text(run_page("A run", {}, [], [], LiveModel(live)), encoding="utf-8")
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(path.as_uri())
        frame = page.frame_locator("iframe.live")
        frame.locator("#app[aria-busy=false]").wait_for(timeout=60_000)
        inside = page.frames[1]
        steps = inside.evaluate("explorer.walk.steps.length")
        frame.locator(".pad button:enabled").first.click()
        frame.locator("#says", has_text="Here is").wait_for(state="attached", timeout=30_000)  # revealed by itself
        assert inside.evaluate("explorer.walk.steps.length") == steps + 1
        assert inside.evaluate("explorer.seen[0].logits.length") == 2 * (steps + 1)
        assert frame.locator("#share").is_hidden()  # a frame has no address to share
        page.wait_for_timeout(400)  # the address would have been written by now
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert faults == []


def test_a_report_allows_the_script_of_its_model_and_no_other(live):
    with_model, without = (
        run_page("A run", {}, [], [], one) for one in (LiveModel(live), LiveModel(why="Too <large>."))
    )
    first, own = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', with_model)
    [script] = re.findall(r"script-src ('sha256-[^']+')", own.replace("&#39;", "'"))
    assert f"script-src {script}" in first and first.startswith("default-src 'none'")
    assert "script-src" not in without and "Too &lt;large&gt;." in without and "<iframe" not in without


def test_a_model_that_makes_the_page_too_large_is_left_out(live):
    page = run_page("A run", {}, [], [], LiveModel(live + " " * LARGEST))
    assert TOO_LARGE in page and len(page) < 10_000
