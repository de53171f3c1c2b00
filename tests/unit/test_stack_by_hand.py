"""What a continuous stack can do, shown with weights that are set by hand: recognise Dyck-2, and hold."""

from itertools import product

import pytest
import torch
from torch import Tensor

from helpers import assert_same
from mapformers.layers.stack_rnn import StackRNN
from mapformers.modules.context import Context

BRACKETS = "([)]"  # the tokens, one-hot
TYPES, SHARP = 2, 40.0


def dyck_machine(depth: int) -> StackRNN:
    """h keeps the innermost open bracket, and the stack those around it.

    Units: is type k innermost (k = 0, 1), was it before this token (2, 3), the top of the stack (4, 5; always 0 in h,
    so that h + W_s s[0] is the top there), and is the token an opener (6). All but 4 and 5 are −1 or 1.
    """
    layer = StackRNN(4, hidden=7, stack_depth=depth, stack_width=TYPES).double()
    w_x, w_h, w_top, w_act = layer.weight_ih, layer.weight_hh, layer.weight_top, layer.weight_act
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        for k in range(TYPES):
            w_x[k, k] = 2.0  # its own opener, or
            w_x[k, TYPES:] = 1.0  # a closer
            w_h[k, 4 + k] = 1.0  # with type k on top
            layer.bias[k] = -1.5
            w_h[2 + k, k], layer.bias[2 + k] = 1.0, -0.5
            w_top[4 + k, k] = 1.0
            w_act[2 + k, 2 + k] = SHARP  # what was innermost is what an opener pushes
            layer.out_proj.weight[k, k] = 1.0
        w_x[6, :TYPES], layer.bias[6] = 1.0, -0.5
        w_act[0, 6], w_act[1, 6] = SHARP, -SHARP
        for weight in (w_x, w_h, layer.bias):
            weight.mul_(SHARP)
    return layer


def innermost(layer: StackRNN, words: list[str]) -> Tensor:
    """(words, L, types) which closer may follow each token."""
    tokens = torch.tensor([[BRACKETS.index(c) for c in word] for word in words])
    x = torch.nn.functional.one_hot(tokens, 4).double()
    y, _ = layer.mix(x, None, Context.of(x))
    sure = y[..., :TYPES].abs()
    assert (sure > 0.999).all()
    return y[..., :TYPES] > 0


def recognised(layer: StackRNN, words: list[str]) -> list[bool]:
    """A word is in the language if every closer was the one that might follow, and nothing is open at the end."""
    found = []
    for word, after in zip(words, innermost(layer, words).tolist()):
        before = [[False] * TYPES, *after]
        fits = all(before[t][BRACKETS.index(c) - TYPES] for t, c in enumerate(word) if c in BRACKETS[TYPES:])
        found.append(fits and not any(after[-1]))
    return found


def is_dyck(word: str) -> bool:
    while "()" in word or "[]" in word:
        word = word.replace("()", "").replace("[]", "")
    return not word


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 2, 4, 7, 8])
def test_it_recognises_dyck_2_exactly(length: int):
    words = ["".join(word) for word in product(BRACKETS, repeat=length)]
    wanted = [is_dyck(word) for word in words]
    assert recognised(dyck_machine(8), words) == wanted
    assert sum(wanted) == {1: 0, 2: 2, 4: 8, 7: 0, 8: 224}[length]  # Catalan numbers times 2 ** pairs


def nest(depth: int) -> str:
    """Types in an order without a period: those of the binary digits of 0, 1, 2, …, one after another."""
    digits = "".join(f"{n:b}" for n in range(depth))[:depth]
    return "".join("(["[int(d)] for d in digits) + "".join(")]"[int(d)] for d in reversed(digits))


@torch.no_grad()
def test_long_words_and_deep_ones():
    words = [nest(64), nest(16) * 4, "()[]" * 32]
    assert recognised(dyck_machine(64), words) == [True] * 3
    assert recognised(dyck_machine(64), [word[:-1] + "(" for word in words]) == [False] * 3


@torch.no_grad()
def test_what_falls_off_the_bottom_is_lost():
    """A stack of 4 cells below the one in h: the fifth bracket around the innermost one is forgotten, and only that."""
    layer = dyck_machine(4)
    assert recognised(layer, [nest(5)]) == recognised(layer, [nest(3) + nest(5)]) == [True]
    (after,) = innermost(layer, [nest(6)])
    assert after[:10].any(dim=-1).all() and not after[10].any()  # one bracket is open, and it says none is
    assert recognised(layer, [nest(6)]) == [False]


@torch.no_grad()
def test_with_a_noop_it_can_hold():
    layer = StackRNN(4, 2, stack_depth=6, stack_width=3, noop=True).double()
    x = torch.randn(3, 50, 4, dtype=torch.float64)
    _, filled = layer.mix(x, None, Context.of(x))
    assert (filled.stack > 0).all()
    layer.weight_act.unflatten(0, (2, -1))[:, :3] = 0
    layer.bias_act.view(2, -1)[:, :3] = torch.tensor([-SHARP, -SHARP, SHARP])
    _, held = layer.mix(x, filled, Context.of(x))
    assert_same(held.stack, filled.stack)
    assert not torch.allclose(held.h, filled.h)


@torch.no_grad()
def test_actions_and_stacks_can_be_observed():
    layer, word = dyck_machine(4), "([])"
    x = torch.nn.functional.one_hot(torch.tensor([[BRACKETS.index(c) for c in word]]), 4).double()
    context = Context.of(x, recording={})
    layer.mix(x, None, context)
    assert context.recording["actions"].shape == (1, 4, 1, 2)
    assert context.recording["actions"][0, :, 0, 0].round().tolist() == [1, 1, 0, 0]  # push, push, pop, pop
    found = context.recording["stack"]  # what each token finds
    assert found.shape == (1, 4, 1, 4, 2)
    assert found[0, 2, 0, :2].round().tolist() == [[1, 0], [0, 0]]  # under the [ in h: the (, then nothing
