"""Perplexity against context length: the same targets, exactly so many tokens before them, for every layer."""

import numpy as np
import pytest
import torch

from helpers import EVERYTHING, VOCAB, Case
from mapformers.errors import UserError
from mapformers.lm import long_context
from mapformers.lm.long_context import block_ends, context_losses, read_to_the_end

CONTEXTS = (8, 12, 40)


def documents(*lengths, seed=0):
    chance = np.random.default_rng(seed)
    return [chance.integers(0, VOCAB, length) for length in lengths]


def by_definition(model, document, context, ends, targets):
    """Each target on its own: the loss that one forward of the window gives it."""
    losses = []
    for end in ends:
        window = torch.from_numpy(document[end - context - 1 : end - 1])[None]
        logits = model(window)[0].float().log_softmax(dim=-1)
        losses += [-float(logits[i, document[end - context + i]]) for i in range(context - targets, context)]
    return sum(losses) / len(losses)


SCALED = Case("mapwm", {"rank": 2, "length_scaling": "log"})
FADING = Case("mapwm", {"rank": 2, "decay": True})


@pytest.mark.parametrize("case", [EVERYTHING, SCALED, FADING], ids=["one of each", "log n", "decay"])
def test_every_layer_reads_in_pieces_what_it_reads_at_once(case, monkeypatch):
    monkeypatch.setattr(long_context, "PIECE", 7)
    model = case.build(dtype=torch.float32).eval()
    texts = documents(60, 47, 90)
    found = context_losses(model, texts, CONTEXTS, targets=3, blocks=2)
    assert found.contexts == CONTEXTS and found.documents == 3 and found.targets == 6
    with torch.no_grad():
        for context in CONTEXTS:
            wanted = [by_definition(model, text, context, block_ends(len(text), CONTEXTS[-1], 2), 3) for text in texts]
            assert found.of(context) == pytest.approx(wanted, rel=2e-4)


def test_targets_are_the_same_for_every_context_and_nothing_further_back_is_seen():
    model = Case("mapwm", {"rank": 2}).build(dtype=torch.float32).eval()
    [text] = documents(60)
    before = context_losses(model, [text], CONTEXTS, targets=2, blocks=1)
    [end] = block_ends(60, longest=40, blocks=1)
    far = text.copy()
    far[end - 12 - 2] = (far[end - 12 - 2] + 1) % VOCAB  # the nearest token that a context of 12 does not reach
    after = context_losses(model, [far], CONTEXTS, targets=2, blocks=1)
    assert after.of(8) == before.of(8) and after.of(12) == before.of(12) and after.of(40) != before.of(40)
    near = text.copy()
    near[end - 12 - 1] = (near[end - 12 - 1] + 1) % VOCAB  # the first that it reaches
    after = context_losses(model, [near], CONTEXTS, targets=2, blocks=1)
    assert after.of(8) == before.of(8) and after.of(12) != before.of(12) and after.of(40) != before.of(40)


def test_blocks_do_not_overlap_and_reach_both_ends():
    assert block_ends(100, longest=40, blocks=3) == [41, 70, 100]
    assert block_ends(41 + 10, longest=40, blocks=3) == [41, 46, 51]
    assert block_ends(77, longest=40, blocks=1) == [59]  # in the middle between 41 and 77


def test_documents_that_are_too_short_are_left_out():
    model = Case("rope").build(dtype=torch.float32).eval()
    assert context_losses(model, documents(41, 40, 44), [40], targets=4, blocks=1).documents == 2


def test_a_model_without_state_reads_at_once():
    model = Case("rope").build(dtype=torch.float32).eval()
    tokens = torch.randint(0, VOCAB, (2, 30))
    with torch.no_grad():
        torch.testing.assert_close(read_to_the_end(lambda x: model(x), tokens, 4), read_to_the_end(model, tokens, 4))


def test_a_diverged_model_has_no_figure():
    def model(tokens):
        return torch.full((*tokens.shape, VOCAB), torch.nan)

    assert np.isnan(context_losses(model, documents(30), [8], targets=2, blocks=1).perplexity(8))


@pytest.mark.parametrize(
    ("contexts", "settings", "sentence"),
    [
        ([100], {}, "A context of 100 needs a document of 133 tokens, but the longest has 60; choose shorter"),
        ([], {}, "Contexts are lengths of at least 1 token"),
        ([16, 40], {"targets": 17}, "so there are 1 to 16 of them, not 17"),
        ([40], {"blocks": 0}, "At least one block"),
    ],
)
def test_wrong_questions_are_refused(contexts, settings, sentence):
    model = Case("rope").build(dtype=torch.float32)
    with pytest.raises(UserError, match=sentence):
        context_losses(model, documents(60), contexts, **settings)
