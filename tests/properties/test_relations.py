"""How the models are related, and what a query may see.

`mapwm` that moves by 1 on RoPE's ladder is `rope`, and one that does not move is `nope`; so is `mapem` whose places
are all alike, or are not asked. Without ``self_key`` a token reads the past only, and a first token itself.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from helpers import CASES, FIRST_CASES, MIXED, PLAIN, Case, Layout, assert_same, thorough
from mapformers import lie
from mapformers.model import Decoder
from mapformers.modules.context import EMPTY_PAST, Context, Past
from mapformers.modules.layer import LAYERS
from mapformers.modules.movement import PathIntegrator

BOTH_CONTEXTS = pytest.mark.parametrize("rows", [PLAIN, MIXED], ids=["plain", "mixed"])
BOTH_KEYS = pytest.mark.parametrize("self_key", [True, False], ids=["self-key", "no-self-key"])


def logits_of(model: Decoder, rows: tuple[str, ...]) -> Tensor:
    layout = Layout(rows)
    logits = model(layout.tokens) if rows is PLAIN else model(layout.tokens, **layout.flags)
    return logits[layout.padding_mask]


def paths_of(model: Decoder) -> list[PathIntegrator]:
    return [module for module in model.modules() if isinstance(module, PathIntegrator)]


def share_weights(source: Decoder, target: Decoder, own: set[str]) -> None:
    """Give ``target`` the weights of ``source``; what it has beyond them must be of the modules in ``own``."""
    missing, unexpected = target.load_state_dict(source.state_dict(), strict=False)
    assert not unexpected
    assert all(own & set(name.split(".")) for name in missing)


@BOTH_KEYS
@BOTH_CONTEXTS
def test_mapwm_that_moves_by_one_is_rope(monkeypatch: pytest.MonkeyPatch, rows: tuple[str, ...], self_key: bool):
    rope = Case("rope", {"self_key": self_key}).build()
    mapwm = Case("mapwm", {"rank": 1, "self_key": self_key}).build(seed=1)
    share_weights(rope, mapwm, own={"path"})
    assert (logits_of(mapwm, rows) - logits_of(rope, rows)).abs().max() > 1e-3

    def one_step(self, x, context=None):
        return torch.ones(*x.shape[:2], 2, 1, dtype=x.dtype)

    monkeypatch.setattr(PathIntegrator, "movement", one_step)
    with torch.no_grad():
        for path in paths_of(mapwm):
            path.w_out.fill_(1.0)
            path.omega.copy_(lie.rope_ladder(4).expand(2, 4))
    assert_same(logits_of(mapwm, rows), logits_of(rope, rows))


@BOTH_KEYS
@BOTH_CONTEXTS
@pytest.mark.parametrize("rank", [1, 3])
def test_mapwm_that_does_not_move_is_nope(rows: tuple[str, ...], self_key: bool, rank: int):
    nope = Case("nope", {"self_key": self_key}).build()
    mapwm = Case("mapwm", {"rank": rank, "self_key": self_key}).build(seed=1)
    share_weights(nope, mapwm, own={"path"})
    assert (logits_of(mapwm, rows) - logits_of(nope, rows)).abs().max() > 1e-3
    with torch.no_grad():
        for path in paths_of(mapwm):
            path.w_in.zero_()
    assert_same(logits_of(mapwm, rows), logits_of(nope, rows))


@BOTH_KEYS
@BOTH_CONTEXTS
def test_mapem_that_compares_observations_alone_is_nope(rows: tuple[str, ...], self_key: bool):
    nope = Case("nope", {"self_key": self_key}).build()
    mapem = Case("mapem", {"attend": "o", "self_key": self_key}).build(seed=1)
    share_weights(nope, mapem, own=set())
    assert_same(logits_of(mapem, rows), logits_of(nope, rows))


@BOTH_KEYS
@BOTH_CONTEXTS
def test_mapem_whose_places_are_all_alike_is_nope(rows: tuple[str, ...], self_key: bool):
    """A_P = q₀ᵖ·k₀ᵖ/√D is then one number; where it is 1, A_X ⊙ A_P is A_X."""
    nope = Case("nope", {"self_key": self_key}).build()
    mapem = Case("mapem", {"self_key": self_key}).build(seed=1)
    share_weights(nope, mapem, own={"path", "query_origin", "key_origin"})
    with torch.no_grad():
        for layer in mapem.layers:
            mixer = layer.mixer
            mixer.path.w_in.zero_()
            product = (mixer.query_origin * mixer.key_origin).sum(dim=-1, keepdim=True)
            mixer.key_origin.mul_(mixer.heads.head_dim**0.5 / product)
    assert_same(logits_of(mapem, rows), logits_of(nope, rows))


@BOTH_KEYS
@BOTH_CONTEXTS
@pytest.mark.parametrize(("name", "sign"), [("mapem", 1), ("mapwm", -1)])
def test_rotations_of_the_plane_commute(name: str, sign: int, rows: tuple[str, ...], self_key: bool):
    """With block 2, `mapem-nc` is `mapem`, and `mapwm-nc` is `mapwm` with every movement negated."""
    plane = Case(name, {"rank": 3, "self_key": self_key}).build()
    products = Case(f"{name}-nc", {"rank": 3, "block": 2, "self_key": self_key}).build(seed=1)
    weights = plane.state_dict()
    for key in weights:
        if key.endswith(("w_out", "omega")):
            weights[key] = weights[key].unsqueeze(-2)  # one generator
        elif key.endswith("w_in"):
            weights[key] = sign * weights[key]
    products.load_state_dict(weights)
    assert_same(logits_of(products, rows), logits_of(plane, rows))


@pytest.mark.parametrize("options", [{}, {"origins": "shared", "project_position": True}], ids=["two-origins", "one"])
def test_mapem_compares_two_origins_carried_along_the_path(options: dict[str, bool]):
    """A_P = (C R(θ_t) q₀ᵖ)·(C R(θ_s) k₀ᵖ)/√D, and with C = 1 depends on θ_t − θ_s alone."""
    model = Case("mapem", options).build()
    for layer, notes in zip(model.layers, model.observe(Layout(PLAIN).tokens)):
        mixer, rotation = layer.mixer, lie.rotation_matrix(notes["theta"])
        q, k = mixer.query_origin, mixer.query_origin if mixer.key_origin is None else mixer.key_origin
        carry = rotation if mixer.projection is None else mixer.projection[:, None] @ rotation
        q_place, k_place = (torch.einsum("bhlij,hj->bhli", carry, origin) for origin in (q, k))
        scale = mixer.heads.head_dim**0.5
        assert_same(notes["attn_p"] * scale, q_place @ k_place.mT)
        if not options:
            apart = lie.rotation_matrix(notes["theta"][:, :, None, :] - notes["theta"][:, :, :, None])
            assert_same(notes["attn_p"] * scale, torch.einsum("hi,bhtsij,hj->bhts", q, apart, k))


KEYED = [case for case in CASES if hasattr(LAYERS[case.name].options, "self_key")]


@pytest.mark.parametrize(
    ("case", "rows"),
    [
        *((case, MIXED) for case in KEYED),
        *((case, PLAIN) if case in FIRST_CASES else thorough(case, PLAIN) for case in KEYED),
    ],
    ids=str,
)
def test_who_reads_the_key_and_value_of_a_token(case: Case, rows: tuple[str, ...]):
    """Disturb k_t and v_t, not q_t: later tokens of the document see it; token t does if it may, or if it is first."""
    mixer = case.build(n_layers=1).layers[0].mixer
    layout = Layout(rows)
    context = Context.of(layout.tokens) if rows is PLAIN else layout.context()
    x = 0.3 * torch.randn(*layout.tokens.shape, 16, dtype=torch.float64)
    before, _ = mixer.mix(x, None, context)
    first_of_keys = 16 if mixer.heads.parts == 3 else 0
    for row, at in layout.documents():
        for order, t in enumerate(at.tolist()):

            def disturb(module, args, out, row=row, t=t):
                out = out.clone()
                out[row, t, first_of_keys:] += torch.randn_like(out[row, t, first_of_keys:])
                return out

            with mixer.heads.project.register_forward_hook(disturb):
                change = (mixer.mix(x, None, context)[0] - before).abs().amax(dim=-1)
            sees_itself = mixer.options.self_key or order == 0
            expected = torch.zeros_like(change, dtype=torch.bool)
            expected[row, at[order if sees_itself else order + 1 :]] = True
            assert_same(change[~expected], torch.zeros_like(change[~expected]))
            assert (change[expected] > 1e-9).all()


def flags_of(length: int) -> st.SearchStrategy[list[bool] | None]:
    return st.none() | st.lists(st.booleans(), min_size=length, max_size=length)


def chunk_of(length: int, reset: list[bool] | None, real: list[bool] | None, past: Past = EMPTY_PAST) -> Context:
    reset, real = (None if flag is None else torch.tensor([flag]) for flag in (reset, real))
    return Context.of(torch.zeros(1, length, dtype=torch.long), reset=reset, padding_mask=real, past=past)


@given(st.data(), st.integers(1, 4), st.integers(1, 5))
def test_the_attention_mask_is_its_definition(data: st.DataObject, past: int, length: int):
    """Seen from a second chunk: every pair (i, j) asked one by one."""
    total = past + length
    resets, reals = ([data.draw(flags_of(n)) for n in (past, length)] for _ in range(2))
    started = [*(resets[0] or [False] * past), *(resets[1] or [False] * length)]
    real = [*(reals[0] or [True] * past), *(reals[1] or [True] * length)]
    first = chunk_of(past, resets[0], reals[0])
    second = chunk_of(length, resets[1], reals[1], first.extended_past())
    for chunk, queries in ((first, range(past)), (second, range(past, total))):
        for self_key in (True, False):
            mask = chunk.attention_mask(self_key).reshape(len(queries), queries.stop)
            for i in queries:
                before = range(i + 1 if self_key else i)
                seen = [j for j in before if real[i] and real[j] and not any(started[j + 1 : i + 1])]
                assert mask[i - queries.start].nonzero().flatten().tolist() == (seen or [i])


@BOTH_CONTEXTS
@pytest.mark.parametrize(("attend", "gates"), [("os", (60.0, 60.0)), ("s", (-60.0, 60.0)), ("o", (60.0, -60.0))])
def test_the_corners_of_the_learned_gates_are_the_three_models(rows, attend, gates):
    gated, corner = Case("mapem", {"attend": "gated"}).build(), Case("mapem", {"attend": attend}).build(seed=1)
    own = gated.state_dict()
    with torch.no_grad():
        for name, weight in corner.state_dict().items():
            parts = own[name].shape[0] // weight.shape[0] if weight.dim() else 1
            weight.copy_(own[name][-weight.shape[0] :] if parts > 1 else own[name])  # `s` has values alone
        for name, weight in own.items():
            if ".gate." in name:
                weight.copy_(torch.tensor(gates).repeat_interleave(2) if name.endswith("bias") else weight * 0)
    assert_same(logits_of(gated, rows), logits_of(corner, rows))
