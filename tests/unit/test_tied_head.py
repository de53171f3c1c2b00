"""One matrix as embedding and head: a start at ln V, one place in a file, exact copies."""

import copy
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

import mapformers as mf
from mapformers.training.optimizer import split_parameters


def tied(name="mapwm", d_model=64, vocab_size=1000, **options):
    torch.manual_seed(0)
    return mf.build_model(name, vocab_size=vocab_size, d_model=d_model, n_heads=2, n_layers=2, tie_head=True, **options)


@pytest.mark.parametrize("d_model", [32, 128])
@pytest.mark.parametrize("options", [{}, {"init": "ordinary"}], ids=str)
def test_the_loss_starts_at_the_logarithm_of_the_vocabulary(d_model, options):
    model = tied(d_model=d_model, **options)
    tokens = torch.randint(1000, (8, 65), generator=torch.Generator().manual_seed(1))
    loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(1000), abs=0.05)


def test_the_matrix_is_one_parameter_with_both_gradients():
    model = tied()
    assert [name for name in model.state_dict() if "head" in name.split(".")] == []
    assert sum(p.numel() for p in model.parameters()) == sum(t.numel() for t in model.state_dict().values()) - sum(
        b.numel() for b in model.buffers()
    )
    found = [p for group in split_parameters(model) for p in group]
    assert sum(p is model.embedding.weight for p in found) == 1
    model(torch.zeros(1, 3, dtype=torch.long)).sum().backward()
    grad = model.embedding.weight.grad
    assert grad is not None and float(grad[1:].abs().max()) > 0  # of tokens that were not read, by the head alone


def test_a_copy_is_tied_to_itself():
    model = tied()
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.embedding.weight.zero_()
    tokens = torch.zeros(1, 3, dtype=torch.long)
    assert (other(tokens) == 0).all() and not (model(tokens) == 0).all()
    fresh = tied()
    fresh.load_state_dict(other.state_dict())
    assert (fresh(tokens) == 0).all()
    assert model.to(torch.float64)(tokens).dtype == torch.float64


def test_untied_models_have_a_head_of_their_own():
    model = mf.build_model("rope", vocab_size=10, d_model=16)
    assert "head.weight" in model.state_dict() and not model.config.tie_head
