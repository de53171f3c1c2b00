"""The page in a real browser, with PyTorch behind it: 40 keys, every kind of task, a phone, the dark, no error."""

import json
from pathlib import Path

import pytest
import torch
from driving import browser, page_at, press, state, until

from untrained import served, untrained_runs

FORTY = ("ArrowRight " * 3 + "ArrowUp " * 2 + "ArrowLeft " * 3 + "ArrowDown " * 2) * 4


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def grid():
    torch.manual_seed(0)
    with served(untrained_runs("navigation", "mapwm", "rope")) as server:
        yield server


def test_forty_keys_walk_and_both_models_read_along(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.click("text=Start over")
        page.evaluate("explorer.revealsByItself = false")
        press(page, FORTY)
        told = state(
            page,
            """({tokens: e.walk.tokens(), steps: e.walk.steps.length, rows: e.seen.map((s) => s.logits.length),
            keys: e.seen.map((s) => s.layers[0].attention[0].map((row) => row.length)), covered: e.isCovered()})""",
        )
        assert told["steps"] >= 20 and told["covered"] and len(told["tokens"]) == 2 * told["steps"] - 1
        assert told["rows"] == [len(told["tokens"])] * 2
        assert told["keys"] == [list(range(1, len(told["tokens"]) + 1))] * 2
        assert page.locator(".candidate").count() >= 5 and page.locator(".verdict b").first.inner_text() == ""
        press(page, "Space")
        assert page.locator(".candidate.right").count() == 1


def test_the_browser_sees_what_the_model_computes(chromium, grid):
    with page_at(chromium, grid.url) as page:
        press(page, "ArrowRight ArrowUp ArrowUp ArrowLeft")
        told = state(page, "({tokens: e.walk.tokens(), logits: e.seen.map((s) => s.logits)})")
    for model, logits in zip(grid.explorer.loaded.models, told["logits"]):
        with torch.no_grad():
            assert torch.allclose(model(torch.tensor([told["tokens"]]))[0], torch.tensor(logits), atol=2e-4)


def test_marks_are_given_on_returns_only(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.click("text=Start over")
        page.evaluate("explorer.revealsByItself = false")
        way, back = state(page, "[[0, 1], [1, 0], [2, 3], [3, 2]].find(([way]) => e.walk.possible().includes(way))")
        for action, again in ((way, False), (back, False), (way, True), (back, True)):
            page.evaluate(f"explorer.go({action})")
            until(page, "!explorer.walk.revealed")
            page.wait_for_timeout(50)
            assert page.locator(".verdict b").all_inner_texts() == ["", ""]  # nothing is told before it is shown
            press(page, "Space")
            marks = page.locator(".verdict b").all_inner_texts()
            assert all((mark in "✓✗" and mark != "") == again for mark in marks)


def test_undo_asks_nothing_and_a_wall_is_a_wall(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.click("text=Start over")
        page.evaluate("explorer.revealsByItself = false")
        press(page, "ArrowRight " * 8)
        assert state(page, "e.walk.place[0]") == 5 and state(page, "e.walk.steps.length") <= 5
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        press(page, "Backspace Backspace")
        assert asked == []


def test_the_address_brings_the_walk_back_without_the_secret(chromium, grid):
    with page_at(chromium, grid.url) as page:
        assert grid.secret not in page.evaluate("location.hash")
        press(page, "ArrowUp ArrowRight")
        page.keyboard.press("Space")
        until(page, "e.walk.revealed && location.hash.endsWith(`=${e.walk.steps.map((s) => s.action).join('.')}`)")
        tokens, address = state(page, "e.walk.tokens()"), page.evaluate("location.hash")
        assert grid.secret not in address
    with page_at(chromium, f"{grid.url}&{address[1:]}") as page:
        assert state(page, "e.walk.tokens()") == tokens


def test_interventions_change_what_is_seen(chromium, grid):
    with page_at(chromium, grid.url) as page:
        before = state(page, "e.seen[0].layers[0].coordinate.at(-1)")
        page.locator(".arrow text").first.click()
        until(page, "explorer.options.still.size === 1 && explorer.milliseconds.length > 1")
        assert state(page, "e.seen[0].layers[0].coordinate.at(-1)") != before
        page.locator(".arrow text").first.click()
        until(page, "explorer.options.still.size === 0")
        page.locator(".chip").nth(3).click()
        page.click("text=Hide it from later tokens")
        until(page, "explorer.options.hidden.size === 1 && explorer.seen[0].layers[0].attention[0].at(-1)[3] === 0")


def test_a_long_walk_comes_back(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.evaluate("import('/lab_view.js').then((lab) => lab.walkAndBack(explorer, 60))")
        page.wait_for_selector("#closing")
        assert "closing error" in page.locator(".results").inner_text()
        assert state(page, "e.journey.tokens") == 240


def test_the_tour_has_six_steps_and_can_be_walked_by_keys(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.keyboard.press("?")
        for step in range(1, 7):
            assert page.locator("#tour .count").inner_text() == f"{step} of 6"
            assert page.locator(".toured").count() == 1
            page.keyboard.press("Enter")  # the button Next has the focus
        assert page.locator("#tour").is_hidden()


def test_hovering_a_token_lights_its_place_everywhere(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.locator(".chip.now").hover()
        assert page.locator("#map .stop.lit").count() >= 1 and page.locator("#world .tile.lit").count() == 1


def test_pictures_and_data_can_be_taken_home(chromium, grid, tmp_path):
    with page_at(chromium, grid.url, accept_downloads=True) as page:
        with page.expect_download() as saved:
            page.click("#save-json")
        found = json.loads(Path(saved.value.path()).read_text())
        assert found["tokens"] and len(found["seen"]) == 2
        text = page.evaluate(
            "import('/saving.js').then((saving) => saving.standalone(document.querySelector('#map svg')))"
        )
        assert text.startswith("<svg") and "class=" not in text and "var(" not in text


@pytest.mark.parametrize("settings", [{"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
                                      {"color_scheme": "dark", "reduced_motion": "reduce"}])  # fmt: skip
def test_it_fits_a_phone_and_the_dark(chromium, grid, settings):
    with page_at(chromium, grid.url, **settings) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if "color_scheme" in settings:
            light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert light == "rgb(20, 22, 26)"
            page.click("#theme")
            assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light
        else:
            before = state(page, "e.walk.steps.length")
            page.locator(".pad button:enabled").first.tap()
            until(page, f"explorer.walk.steps.length === {before + 1}")


def test_what_happens_is_said_aloud(chromium, grid):
    with page_at(chromium, grid.url) as page:
        page.evaluate("explorer.go(explorer.walk.possible()[0])")
        until(page, "document.getElementById('says').textContent.startsWith('Here is')")
        assert page.locator("#says").get_attribute("aria-live") == "polite"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, select, input')]"
            ".filter((b) => !(b.textContent || b.ariaLabel || b.closest('label'))).length"
        )
        assert unnamed == 0


def test_brackets_are_typed_and_the_stack_grows(chromium):
    with served(untrained_runs("dyck", "mapwm", "rope")) as server, page_at(chromium, server.url) as page:
        page.click("text=Start over")
        press(page, "( [ ( ( ( [ ]")
        assert state(page, "e.walk.tokens()") == [0, 1, 0, 0, 0, 1, 3]
        assert (
            page.locator(".plate").count() == 5
            and page.locator(".beyond").count() == 1
            and page.locator(".arc-truth").count() == 1
        )
        assert page.locator(".mark-right").all_inner_texts() == ["may", "may", "may", "no"]
        page.fill("#typed", "()[")
        page.press("#typed", "Enter")
        until(page, "explorer.walk.tokens().length === 3")


def test_a_family_is_walked_by_relations(chromium):
    with served(untrained_runs("family-tree")) as server, page_at(chromium, server.url) as page:
        before = state(page, "e.walk.steps.length")
        page.locator(".way").first.click()
        page.wait_for_selector("#certain")
        assert state(page, "e.walk.steps.length") == before + 1
        assert page.locator(".node.me").count() == 1 and "Certain by kinship?" in page.locator("#certain").inner_text()


def test_a_graph_of_ones_own_is_walked_by_clicking_neighbours(chromium):
    with served(untrained_runs("graph")) as server, page_at(chromium, server.url) as page:
        near = page.locator(".node.near").first
        key = near.get_attribute("data-key")
        near.click()
        until(page, f"String(explorer.walk.place) === '{key}'")
        actions = state(page, "e.task.tokens.slice(0, 2)")
        mine = {"name": "mine", "nodes": ["here", "there"], "actions": actions, "start": "there",
                "edges": [["here", actions[0], "there"], ["there", actions[1], "here"]]}  # fmt: skip
        page.evaluate(
            "(text) => import('/own_graph.js').then((own) => own.enterGraph(explorer, text))", json.dumps(mine)
        )
        until(page, "explorer.raw.name === 'mine'")
        assert page.locator(".node").count() == 2


def test_copying_shows_movement_and_attention_of_every_token(chromium):
    with served(untrained_runs("selective-copy", "mapwm")) as server, page_at(chromium, server.url) as page:
        assert page.locator("#world .pillar").count() > 10
        press(page, "A B")
        assert state(page, "e.walk.tokens().slice(-2)") == [0, 1]
