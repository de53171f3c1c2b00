"""The model in the page answers as PyTorch does, token by token, with every intervention.

The first variant of every layer; with `--thorough` all variants.
"""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mapformers as mf
from helpers import CASES, FIRST_CASES, THOROUGH, Case, draw_tokens
from mapformers.errors import UserError
from mapformers.explorer.step import OBSERVABLES
from mapformers.explorer.step_graph import MOST_PARAMETERS, step_graph
from mapformers.model import Decoder
from mapformers.modules.observables import Observed

NODE = shutil.which("node")
SCRIPT = Path(__file__).parent / "js" / "compare.mjs"
TOKENS = draw_tokens(1, 24)
# From some token on each: one that does not move, a temperature, tokens that are hidden.
SETTINGS: list[dict[str, Any]] = [{} for _ in range(24)]
SETTINGS[9]["movementScale"] = 0
SETTINGS[15]["hidden"] = [2, 5]
for later in SETTINGS[13:]:
    later["temperature"] = 0.7
SMALL_HYBRID = Case(None, {"layers": ["tape", ("mapwm", {"rank": 1}), "tape", "mamba"]})
EACH = [*(CASES if THOROUGH else FIRST_CASES), SMALL_HYBRID]
OBSERVED = [*FIRST_CASES, SMALL_HYBRID]
TOLERANCE = 1e-5


def built(case: Case) -> Decoder:
    return case.build(dtype=torch.float32, n_layers=1).eval()


def graph(case: Case) -> dict[str, Any]:
    """What can be observed is traced once for each layer: it takes as long as all the rest."""
    return step_graph(built(case), OBSERVABLES if case in OBSERVED else ())


@cache
def answers() -> dict[str, Any]:
    """What the reader answers for every case: node is started once."""
    jobs = [{"graph": graph(case), "tokens": TOKENS[0].tolist(), "settings": SETTINGS} for case in EACH]
    done = subprocess.run(
        [str(NODE), str(SCRIPT)], input=json.dumps(jobs), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(map(str, EACH), json.loads(done.stdout), strict=True))


def streamed(model: Decoder) -> list[Observed]:
    """The same stream by PyTorch, whose own way to intervene is the state and two arguments."""
    seen, state = [], None
    for token, settings in zip(TOKENS.split(1, dim=1), SETTINGS):
        if "hidden" in settings:
            state = state.hiding(settings["hidden"])
        scale = torch.full((1, 1), float(settings.get("movementScale", 1)))
        seen.append(model.observe(token, state=state, movement_scale=scale, temperature=settings.get("temperature")))
        state = seen[-1].state
    return seen


def read(seen: dict[str, Any], like: Tensor) -> Tensor:
    return torch.tensor(seen["data"], dtype=like.dtype).reshape(seen["shape"])


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("case", EACH, ids=str)
def test_the_reader_answers_as_pytorch_does(case: Case):
    found, model = answers()[str(case)], built(case)
    for step, seen in zip(found["steps"], streamed(model), strict=True):
        logits = seen.logits[0, 0]
        assert (torch.tensor(step["logits"]) - logits).abs().max() <= TOLERANCE * logits.abs().max()
        assert set(step["observed"]) == {
            f"layer{index}.{name}"
            for index, noted in enumerate(seen)
            for name in OBSERVABLES
            if name in noted and case in OBSERVED
        }
        for name, value in step["observed"].items():
            layer, _, key = name.partition(".")
            expected = seen[int(layer.removeprefix("layer"))][key]
            difference = read(value, expected) - expected
            if key == "theta":  # an angle, whichever way round
                difference = torch.remainder(difference + torch.pi, 2 * torch.pi) - torch.pi
            assert difference.abs().max() <= TOLERANCE * max(1.0, float(expected.abs().max())), name


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize("case", EACH, ids=str)
def test_the_reader_begins_where_pytorch_begins(case: Case):
    found, empty = answers()[str(case)]["empty"], built(case).empty_state()
    expected = {
        f"layer{index}.{field}": tensor
        for index, state in enumerate(empty.layers)
        for field, tensor in zip(state._fields, state)
        if tensor is not None
    }
    assert set(found) - {"visible"} == set(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(read(found[name], tensor), tensor, rtol=0, atol=0)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_interventions_change_what_is_answered():
    """Otherwise the comparison above would compare nothing."""
    model = built(Case("mapwm"))
    with torch.no_grad():
        plain = model(TOKENS)[0]
    found = [torch.tensor(step["logits"]) for step in answers()["mapwm"]["steps"]]
    same = [bool((logits - whole).abs().max() < 1e-4) for logits, whole in zip(found, plain)]
    assert all(same[:9]) and not any(same[9:])


def test_a_page_with_two_models_is_small():
    sizes = [len(json.dumps(step_graph(mf.build_model(name, vocab_size=21, d_model=64)))) for name in ("mapwm", "rope")]
    assert sum(sizes) < 700_000


def test_one_matrix_that_is_used_twice_is_stored_once():
    tied, untied = (
        step_graph(mf.build_model("nope", vocab_size=500, d_model=16, tie_head=tie)) for tie in (True, False)
    )
    stored = [sum(len(weight["data"]) for weight in graph["weights"].values()) for graph in (tied, untied)]
    assert stored[1] - stored[0] > 0.99 * 500 * 16 * 4 * 4 / 3


def test_what_a_page_cannot_hold_is_refused_in_a_sentence():
    large = mf.build_model("nope", vocab_size=MOST_PARAMETERS // 128, d_model=128)
    with pytest.raises(UserError, match=r"The model has 4\.\d million parameters.*choose a smaller model"):
        step_graph(large)
    with pytest.raises(UserError, match=r"model\.float\(\)"):
        step_graph(mf.build_model("nope", vocab_size=5, d_model=8).double())
