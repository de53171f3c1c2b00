"""What somebody gives to the page: a moment of the training, a string, a text, and a click while a token is read."""

from pathlib import Path

import pytest
import torch
from driving import browser, page_at, press, state, until

from helpers import tiny_corpus
from mapformers.explorer.loaded_runs import LoadedRuns, open_runs
from mapformers.runs import snapshots
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run
from untrained import served, untrained_runs


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


def assert_read_by(model, page):
    """The page shows what the model answers to the tokens that the page has."""
    told = state(page, "({tokens: e.walk.tokens(), logits: e.seen[0].logits})")
    with torch.no_grad():
        assert torch.allclose(model(torch.tensor([told["tokens"]]))[0], torch.tensor(told["logits"]), atol=2e-4)


def test_the_slider_goes_through_the_training_and_stays_in_the_hand(chromium, tmp_path):
    (run,) = untrained_runs("navigation").runs
    for step in (5, 12):
        with torch.no_grad():
            for weights in run.model.parameters():
                weights.mul_(1.2)
        snapshots.save(tmp_path, step, run.model)
    run.save(tmp_path)
    loaded = open_runs([tmp_path])
    with served(loaded) as server, page_at(chromium, server.url) as page:
        assert page.locator("#moment-says").inner_text() == "How it learned: after step 12 of training"
        page.focus("#moment")
        for key, step in (("ArrowLeft", 5), ("ArrowLeft", 0), ("ArrowRight", 5), ("End", 12)):
            before = state(page, "[e.milliseconds.length, e.layerAbout().movements[0][0]]")
            page.keyboard.press(key)
            until(page, f"e.milliseconds.length > {before[0]}")
            assert page.locator("#moment-says").inner_text() == f"How it learned: after step {step} of training"
            assert page.evaluate("document.activeElement.id") == "moment"  # the next key moves it on
            assert state(page, "e.layerAbout().movements[0][0]") != before[1]
            assert_read_by(loaded.at_snapshot(0, step), page)


def test_a_string_of_ones_own_is_read_and_stays_to_be_changed(chromium):
    loaded = untrained_runs("dyck")
    with served(loaded) as server, page_at(chromium, server.url) as page:
        for string, tokens in (("([]", [0, 1, 3]), ("([x])", [0, 1, 3, 2])):  # what is no bracket is left out
            page.fill("#typed", string)
            page.press("#typed", "Enter")
            until(page, f"e.seen[0].logits.length === {len(tokens)}")
            assert state(page, "e.walk.tokens()") == tokens and page.input_value("#typed") == string
            assert_read_by(loaded.models[0], page)


def test_a_text_of_ones_own_is_read_by_a_model_of_text(chromium):
    config = RunConfig.compose("text", "mapwm", scale="smoke", data=tiny_corpus(), context=24, d_model=16)
    loaded = LoadedRuns((Run(Path("nowhere"), config, config.build_model().eval(), {}, 0),))
    with served(loaded) as server, page_at(chromium, server.url) as page:
        page.fill("textarea", "a map, learned")
        page.locator("textarea").blur()
        wanted = loaded.task.corpus.tokenizer.encode(["a map, learned"])[0].tolist()
        until(page, f"e.seen[0].logits.length === {len(wanted)}")
        assert state(page, "e.walk.tokens()") == wanted
        assert page.locator(".chip").count() == len(wanted) and page.input_value("textarea") == "a map, learned"
        assert_read_by(loaded.models[0], page)
        press(page, "Backspace")  # the field has lost the focus, so this takes the last token back
        assert state(page, "e.walk.tokens()") == wanted[:-1]


def test_a_click_while_a_token_is_being_read_waits_for_it(chromium):
    with served(untrained_runs("navigation")) as server, page_at(chromium, server.url) as page:
        page.evaluate("explorer.revealsByItself = false")
        page.evaluate("() => { explorer.go(explorer.walk.possible()[0]); explorer.lookFrom(explorer.cursor); }")
        until(page, "e.seen[0].logits.length === e.walk.tokens().length")
        assert page.locator(".chip.now").get_attribute("data-token") == str(state(page, "e.walk.tokens().length - 1"))
