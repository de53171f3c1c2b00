"""The page as one file, opened from the disk: the models run in it, and compute what PyTorch computes."""

import json
import re

import pytest
import torch
from driving import browser, page_at, press, state, until

from mapformers.errors import UserError
from mapformers.explorer.bundle import bundle, joined_modules
from mapformers.explorer.loaded_runs import LoadedRuns
from mapformers.explorer.session import ReadRequest, Session
from untrained import untrained_runs

FORTY = ("ArrowRight " * 3 + "ArrowUp " * 2 + "ArrowLeft " * 3 + "ArrowDown " * 2) * 4


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _quick_players():
    """Players take a while, and are not what is tested here."""
    before, LoadedRuns.players = LoadedRuns.players, lambda self: {}
    yield
    LoadedRuns.players = before


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    torch.manual_seed(0)
    loaded = untrained_runs("navigation", "mapwm", "rope")
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(bundle(loaded), encoding="utf-8")
    return loaded, path


def test_forty_keys_from_the_disk_compute_what_pytorch_computes(chromium, grid):
    loaded, path = grid
    with page_at(chromium, path.as_uri()) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.click("text=Start over")
        page.evaluate("explorer.revealsByItself = false")
        press(page, FORTY)
        told = state(page, "({tokens: e.walk.tokens(), seen: e.seen})")
        assert len(told["tokens"]) >= 39 and asked == []  # it asks nobody
    for model, seen in zip(loaded.models, told["seen"]):
        wanted = Session(model).read(ReadRequest(tuple(told["tokens"])))
        assert torch.allclose(torch.tensor(seen["logits"]), torch.tensor(wanted["logits"]), atol=2e-4)
        for name in ("delta_in", "coordinate", "attention"):
            if name in wanted["layers"][0]:
                for one, other in zip(seen["layers"][0][name], wanted["layers"][0][name], strict=True):
                    assert torch.allclose(numbers(one), numbers(other), atol=2e-4), name


def numbers(rows):
    """All numbers of a row, or of the rows of a triangle, one after another."""
    return torch.tensor([value for row in rows for value in (row if isinstance(row, list) else [row])])


ROW = """() => {
  const strip = document.getElementById("strip");
  const [around, now] = [strip, strip.querySelector(".chip.now")].map((part) => part.getBoundingClientRect());
  const tokens = [...strip.querySelectorAll(".chip")].map((chip) => Number(chip.dataset.token));
  return { tokens, inView: now.left >= around.left && now.right <= around.right };
}"""


def test_the_row_of_tokens_follows_a_long_walk_and_back(chromium, grid):
    with page_at(chromium, grid[1].as_uri()) as page:
        page.evaluate("explorer.revealsByItself = false")
        for keys in (" ".join(["ArrowRight ArrowUp ArrowLeft ArrowDown"] * 16), "Backspace " * 9, "ArrowUp ArrowUp"):
            press(page, keys.strip())
            page.wait_for_timeout(100)
            row, length = page.evaluate(ROW), state(page, "e.walk.tokens().length")
            assert row == {"tokens": list(range(length - 96, length)), "inView": True}


def test_interventions_are_those_of_python(chromium, grid):
    loaded, path = grid
    with page_at(chromium, path.as_uri()) as page:
        tokens = state(page, "e.walk.tokens()")
        for options in ({"hidden": [5, 9]}, {"still": [0]}, {"temperature": 3}):
            seen = page.evaluate("(options) => explorer.engine.read(0, explorer.walk.tokens(), options)", options)
            given = {name: frozenset(value) if isinstance(value, list) else value for name, value in options.items()}
            wanted = Session(loaded.models[0]).read(ReadRequest(tuple(tokens), **given))
            assert torch.allclose(torch.tensor(seen["logits"]), torch.tensor(wanted["logits"]), atol=2e-4), options


def test_undo_and_branch_read_only_what_is_new(chromium, grid):
    with page_at(chromium, grid[1].as_uri()) as page:
        page.evaluate("() => { explorer.revealsByItself = false; globalThis.steps = 0;"
                      "for (const graph of explorer.engine.graphs) { const step = graph.step.bind(graph);"
                      "graph.step = (...given) => { globalThis.steps++; return step(...given); }; } }")  # fmt: skip
        press(page, "Backspace Backspace Backspace")
        assert page.evaluate("steps") == 0
        page.evaluate("explorer.go(explorer.walk.possible()[0])")
        until(page, "!e.walk.revealed && e.seen[1].logits.length === e.walk.tokens().length")
        assert page.evaluate("steps") == 2  # one token, two models


@pytest.mark.parametrize("task", ["dyck", "family-tree", "graph", "selective-copy"])
def test_every_kind_of_task_opens_from_the_disk(chromium, task, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(bundle(untrained_runs(task)), encoding="utf-8")
    with page_at(chromium, path.as_uri(), viewport={"width": 390, "height": 844}) as page:
        assert state(page, "e.seen[0].logits.length") > 0
        press(page, "( [" if task == "dyck" else "1 1" if task in ("family-tree", "graph") else "A B")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.click("#new-world")
        until(page, "e.seed !== 1")


def test_the_policy_of_the_file_allows_its_own_scripts_only(grid):
    text = grid[1].read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'sha256-" in policy
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?!data:)", text)
    data = json.loads(re.search(r'id="models">(.*?)</script>', text, re.DOTALL).group(1))
    assert len(data["graphs"]) == 2 and [model["label"] for model in data["about"]["models"]] == ["MapWM-r2", "RoPE"]


def test_modules_that_cannot_be_joined_are_refused():
    with pytest.raises(UserError, match=r"in a circle: a\.js → b\.js → a\.js"):
        joined_modules({"a.js": 'import { b } from "./b.js";\n', "b.js": 'import { a } from "./a.js";\n'}, "a.js")
    with pytest.raises(UserError, match="cannot be joined"):
        joined_modules({"a.js": "export default 1;\n"}, "a.js")
    joined = joined_modules(
        {"a.js": 'import { b } from "./b.js";\nb();\n', "b.js": "export function b() {}\nconst c = 1;\n"}, "a.js"
    )
    assert joined.index("module_b =") < joined.index("module_a =") and "const { b } = module_b;" in joined


def test_a_model_that_is_too_large_is_refused():
    with pytest.raises(UserError, match="million parameters"):
        bundle(untrained_runs("navigation", "rope", d_model=512))
