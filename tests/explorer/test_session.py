"""A session answers what the model would, whatever was read before; interventions do what they say."""

import pytest
import torch

from mapformers.errors import UserError
from mapformers.explorer import session as sessions
from mapformers.explorer.session import ReadRequest, Session
from untrained import untrained_runs

TOKENS = (0, 5, 2, 7, 0, 4, 3, 9, 1, 6, 1, 5)
MODELS = ["mapwm", "rope", "mapem", "mapwm-nc", "mamba"]


@pytest.fixture(params=MODELS)
def model(request):
    return untrained_runs("navigation", request.param).models[0]


def close(one, other, within=2e-4):
    return torch.allclose(torch.tensor(one), torch.tensor(other), atol=within)


def test_a_walk_read_token_by_token_is_the_walk_read_at_once(model):
    whole, session = model.observe(torch.tensor([TOKENS])), Session(model)
    for length in range(1, len(TOKENS) + 1):
        seen = session.read(ReadRequest(TOKENS[:length], start=length - 1))
        assert seen["from"] == length - 1 and len(seen["logits"]) == 1
        assert close(seen["logits"][0], whole.logits[0, length - 1].tolist())
        for layer, notes in zip(seen["layers"], whole):
            if "coordinate" in notes:
                assert close(layer["coordinate"][0], notes["coordinate"][0, length - 1].flatten().tolist())
            if "attention" in notes:
                assert close(layer["attention"][0][0], notes["attention"][0, 0, length - 1, :length].tolist())


def test_undo_and_branch_answer_as_if_nothing_else_had_been_read(model):
    session = Session(model)
    session.read(ReadRequest(TOKENS))
    branch = (*TOKENS[:5], 8, 2, 4)
    assert close(session.read(ReadRequest(branch))["logits"], Session(model).read(ReadRequest(branch))["logits"])
    assert close(
        session.read(ReadRequest(TOKENS[:7]))["logits"], Session(model).read(ReadRequest(TOKENS[:7]))["logits"]
    )


def test_one_more_token_is_one_step(model, monkeypatch):
    read = []
    observe = type(model).observe
    monkeypatch.setattr(
        type(model),
        "observe",
        lambda self, tokens, **rest: read.append(tokens.shape[1]) or observe(self, tokens, **rest),
    )
    session = Session(model)
    session.read(ReadRequest(TOKENS[:8]))
    session.read(ReadRequest(TOKENS[:9], start=8))
    session.read(ReadRequest((*TOKENS[:8], 3), start=8))
    assert read == [8, 1, 1]


def test_long_readings_are_read_in_chunks(model, monkeypatch):
    whole = Session(model).read(ReadRequest(TOKENS))
    monkeypatch.setattr(sessions, "CHUNK", 5)
    assert close(Session(model).read(ReadRequest(TOKENS))["logits"], whole["logits"])


@pytest.mark.parametrize("name", ["mapwm", "rope", "mapem"])
def test_a_hidden_key_gets_no_attention_from_later_tokens(name):
    model = untrained_runs("navigation", name).models[0]
    seen = Session(model).read(ReadRequest(TOKENS, hidden=frozenset({3})))
    rows = seen["layers"][0]["attention"][0]
    assert rows[3][3] > 0 or name == "mapem"  # of itself it knows
    assert all(row[3] == 0 for row in rows[4:]) and all(abs(sum(row) - 1) < 1e-3 for row in rows[4:])
    before = Session(model).read(ReadRequest(TOKENS))
    assert close(seen["logits"][:4], before["logits"][:4]) and not close(seen["logits"][5:], before["logits"][5:])


@pytest.mark.parametrize("name", ["mapwm", "mapem", "mapwm-nc"])
def test_a_token_that_stands_still_moves_by_nothing(name):
    model = untrained_runs("navigation", name).models[0]
    session = Session(model)
    seen = session.read(ReadRequest(TOKENS, still=frozenset({0})))
    moved = [max(map(abs, row)) for row in seen["layers"][0]["delta_in"]]
    assert all((size == 0) == (token == 0) for token, size in zip(TOKENS, moved))
    assert close(
        session.read(ReadRequest(TOKENS))["logits"], Session(model).read(ReadRequest(TOKENS))["logits"]
    )  # and back


def test_warm_attention_is_flatter():
    model = untrained_runs("navigation", "rope").models[0]
    spread = {}
    for heat in (0.1, 1.0, 10.0):
        row = Session(model).read(ReadRequest(TOKENS, temperature=heat))["layers"][0]["attention"][0][-1]
        spread[heat] = max(row)
    assert spread[0.1] > spread[1.0] > spread[10.0]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "tokens must be a list"),
        ({"tokens": []}, "1 to"),
        ({"tokens": [0, "1"]}, "tokens must be a list of whole numbers"),
        ({"tokens": [True]}, "whole numbers"),
        ({"tokens": [0], "from": 1}, "start"),
        ({"tokens": [0], "from": "x"}, "from must be a whole number"),
        ({"tokens": [0], "temperature": 0}, "temperature"),
        ({"tokens": [0], "temperature": "hot"}, "temperature must be a number"),
        ({"tokens": [0] * 20_001}, "1 to 20000"),
        ([], "object"),
    ],
)
def test_a_wrong_reading_is_a_sentence(asked, sentence):
    with pytest.raises(UserError, match=sentence):
        ReadRequest.of(asked)


def test_a_token_that_the_model_does_not_know_is_a_sentence():
    with pytest.raises(UserError, match="out of range"):
        Session(untrained_runs("navigation").models[0]).read(ReadRequest((99,)))


def test_of_a_large_vocabulary_the_likeliest_tokens_are_told(monkeypatch):
    monkeypatch.setattr(sessions, "LARGE_VOCABULARY", 20)
    monkeypatch.setattr(sessions, "LIKELIEST", 3)
    model = untrained_runs("navigation").models[0]
    rows = Session(model).read(ReadRequest(TOKENS))["logits"]
    with torch.no_grad():
        wanted = model(torch.tensor([TOKENS]))[0].log_softmax(-1).topk(3)
    assert [row["tokens"] for row in rows] == wanted.indices.tolist()
    assert close([row["values"] for row in rows], wanted.values.tolist())
