"""A path that starts as RoPE is RoPE at the start, and departs from it by learning."""

import math

import pytest
import torch

import mapformers as mf
from mapformers.errors import UserError

SIZES = {"vocab_size": 30, "d_model": 48, "n_heads": 3, "n_layers": 2}


def pair(rank, base=10000.0, **options):
    """`rope`, and a `mapwm` that starts as it, with the same weights besides the path."""
    torch.manual_seed(rank)
    rope = mf.build_model("rope", rope_base=base, **SIZES, **options)
    maps = mf.build_model("mapwm", rank=rank, path_start="rope", rope_base=base, **SIZES, **options)
    lacking = maps.load_state_dict(rope.state_dict(), strict=False)
    assert not lacking.unexpected_keys and all(".path." in name for name in lacking.missing_keys)
    return rope, maps


@pytest.mark.parametrize("rank", [1, 3, 4, 8])
@pytest.mark.parametrize("options", [{}, {"base": 500.0}, {"self_key": False}, {"init": "ordinary"}], ids=str)
def test_it_is_rope_with_the_same_weights(rank, options):
    rope, maps = pair(rank, **options)
    tokens = torch.randint(30, (2, 200))
    ours, theirs = maps(tokens), rope(tokens)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    grads = []
    for model, logits in ((maps, ours), (rope, theirs)):
        logits.square().mean().backward()
        grads.append({name: p.grad for name, p in model.named_parameters() if ".path." not in name})
    for name, grad in grads[1].items():
        torch.testing.assert_close(grads[0][name], grad, rtol=1e-3, atol=1e-6, msg=name)


def test_every_inner_dimension_has_fast_blocks_and_slow_ones():
    _, maps = pair(4)
    path = maps.layers[0].mixer.path
    turns = (path.w_out * path.omega.unsqueeze(1))[0]  # (r, n_b) of a head of 16: 8 blocks, two for each dimension
    assert (path.w_in == 0).all() and (path.mean == -1).all()
    assert ((turns > 0).sum(dim=1) == 2).all() and ((turns > 0).sum(dim=0) == 1).all()
    torch.testing.assert_close(turns.sum(dim=0), torch.tensor([10000.0 ** (-i / 8) for i in range(8)]))


def test_it_departs_from_rope_by_learning():
    """W_in starts at zero, and not where its gradient is zero; RoPE's own angles get no gradient."""
    _, maps = pair(4)
    maps(torch.randint(30, (2, 50))).square().mean().backward()
    for layer in maps.layers:
        path = layer.mixer.path
        assert all(float(p.grad.abs().max()) > 0 for p in (path.w_in, path.w_out, path.omega))


def test_packed_and_streamed_as_rope():
    rope, maps = pair(2)
    tokens = torch.randint(30, (1, 40))
    reset = torch.zeros_like(tokens, dtype=torch.bool)
    reset[0, 13] = True
    torch.testing.assert_close(maps(tokens, reset=reset), rope(tokens, reset=reset), rtol=1e-5, atol=1e-5)
    first, state = maps(tokens[:, :9], return_state=True)
    rest = maps(tokens[:, 9:], state=state)
    torch.testing.assert_close(torch.cat((first, rest), dim=1), rope(tokens), rtol=1e-5, atol=1e-5)


def test_a_start_that_there_is_not_and_a_base_without_a_ladder_are_refused():
    with pytest.raises(UserError, match="path_start must be one of random, rope, not 'alibi'"):
        mf.build_model("mapwm", path_start="alibi", **SIZES)
    with pytest.raises(UserError, match="rope_base must be above 1, not 1"):
        mf.build_model("mapem", path_start="rope", rope_base=1.0, **SIZES)


def test_the_random_start_is_what_it_was():
    torch.manual_seed(0)
    path = mf.build_model("mapwm", **SIZES).layers[0].mixer.path
    assert (path.mean == 0).all() and float(path.w_in.detach().std()) == pytest.approx(1 / 48, rel=0.3)
    assert float(path.omega.detach().max()) == pytest.approx(2 * math.pi)
