"""`mampa` against what it must be: MapWM without its softmax (A.5), and Mamba with a purely imaginary A (A.3)."""

import pytest
import torch
from torch import Tensor, nn

import mapformers as mf
from helpers import MIXED, PLAIN, Layout
from mapformers import lie
from mapformers.layers.mampa import LITERAL, PathMAmPa, SteppedMAmPa
from mapformers.modules import attention
from mapformers.modules.context import Context
from mapformers.modules.layer import LAYERS
from mapformers.modules.mixer import LayerShape
from mapformers.ops.linear_attention import linear_attention, rotation_loop

D_MODEL = 12
STEPPED = {
    "literal": LITERAL,
    "decaying": LITERAL | {"decay": True},
    "signed": {"rank": None},
    "signed-decaying": {"rank": None, "decay": True, "d_state": 6},
}
PATH = {"default": {}, "decaying": {"decay": True}, "one-group": {"groups": 1, "rank": 1}}
each_layout = pytest.mark.parametrize("rows", [PLAIN, MIXED], ids=["plain", "documents-and-padding"])


def build(name: str, shape: LayerShape, **options) -> nn.Module:
    """A registered mixer, every parameter drawn at random, in float64."""
    mixer = LAYERS[name].build(shape, LAYERS[name].options(**options)).mixer.double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return mixer


def assert_same_with_gradients(ours: Tensor, theirs: Tensor, inputs: list[Tensor]):
    """Value, and gradient with respect to every input, to 1e-10."""
    weight = torch.randn_like(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    gradients = (torch.autograd.grad(out, inputs, weight, retain_graph=True) for out in (ours, theirs))
    for mine, their in zip(*gradients, strict=True):
        assert their.any()
        torch.testing.assert_close(mine, their, rtol=1e-10, atol=1e-10)


def context_of(layout: Layout) -> Context:
    return Context.of(layout.tokens) if layout.rows is PLAIN else layout.context()


def draw_input(layout: Layout) -> Tensor:
    return torch.randn(*layout.tokens.shape, D_MODEL, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def linear_mapwm(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Takes the softmax out of MapWM: y_t = Σ_{s≤t} ⟨R q_t, R k_s⟩ v_s. Holds the rotated q and k, v and y."""
    seen: dict[str, Tensor] = {}

    def attend_without_softmax(q: Tensor, k: Tensor, v: Tensor, _, context: Context, __) -> Tensor:
        visible = context.attention_mask().expand(len(q), 1, -1, -1)
        seen.update(q=q, k=k, v=v, y=(q @ k.mT).masked_fill(~visible, 0.0) @ v)
        return seen["y"]

    monkeypatch.setattr(attention, "attend", attend_without_softmax)
    return seen


@each_layout
def test_linear_mapwm_is_a_rotation_ssm(rows: tuple[str, ...], linear_mapwm: dict[str, Tensor]):
    """h_t = R(−Δ_t ω) h_{t−1} + k_t v_tᵀ, y_t = q_tᵀ h_t (eq. ssm_rope): by the loop, and by the fast form of it."""
    torch.manual_seed(0)
    layout, mixer = Layout(rows), build("mapwm", LayerShape(D_MODEL, 2, 6), rank=2)
    x, context = draw_input(layout), context_of(layout)
    mixer.mix(x, None, context)
    real, inputs = layout.padding_mask, [x, *mixer.path.parameters(), mixer.heads.project.weight]
    q, k, v = mixer.heads.split(x)
    step = torch.einsum(
        "blhr,hrn->bhln", mixer.path.movement(x), mixer.path.w_out * mixer.path.omega.unsqueeze(1)
    )  # the angle of every single token, θ_t − θ_{t−1}
    if rows is MIXED:  # padding does not move, and writes nothing
        step, v = (t.masked_fill(~real[:, None, :, None], 0.0) for t in (step, v))
    nothing = v.new_zeros(*v.shape[:2], q.shape[-1], v.shape[-1])
    looped, _ = rotation_loop(-step, q, k, v, nothing, reset=context.reset)
    fast, _ = linear_attention(linear_mapwm["q"], linear_mapwm["k"], v, nothing, reset=context.reset)
    for ssm in (looped, fast):
        ssm, attention = (t.transpose(1, 2)[real] for t in (ssm, linear_mapwm["y"]))
        assert_same_with_gradients(ssm, attention, inputs)


@each_layout
def test_the_recurrence_of_mampa_is_linear_mapwm(rows: tuple[str, ...], linear_mapwm: dict[str, Tensor]):
    """The two mixers with the same weights: C is W_q, B is W_k, the channels are the values, and Δ is counted back."""
    torch.manual_seed(0)
    layout, shape = Layout(rows), LayerShape(D_MODEL, 1, D_MODEL)
    ours, theirs = build("mampa", shape, d_state=D_MODEL, expand=1, groups=1), build("mapwm", shape)
    with torch.no_grad():
        b, c = ours.x_proj.weight.chunk(2)
        theirs.heads.project.weight.copy_(torch.cat((c, b, torch.eye(D_MODEL))))
        theirs.heads.out.weight.copy_(torch.eye(D_MODEL))
        theirs.path.load_state_dict(ours.path.state_dict())
        theirs.path.w_in.neg_()
        ours.B_bias.zero_()
        ours.C_bias.zero_()
    x = draw_input(layout)
    y, _, _ = ours.recur(x, x, None, context_of(layout))
    attention, _ = theirs.mix(x, None, context_of(layout))
    real = layout.padding_mask
    torch.testing.assert_close(y[real], attention[real], rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(y[real])
    gradients = (
        torch.autograd.grad(out[real], [x, mixer.path.omega, mixer.path.w_out, mixer.path.w_in], weight)
        for out, mixer in ((y, ours), (attention, theirs))
    )
    for mine, their, sign in zip(*gradients, (1, 1, 1, -1), strict=True):
        torch.testing.assert_close(mine, sign * their, rtol=1e-10, atol=1e-10)


def complex_loop(log_a: Tensor, b: Tensor, c: Tensor, v: Tensor) -> Tensor:
    """h_t = exp(log a_t) h_{t−1} + b_t v_t, y_t = Re(c̄_t h_t): one complex number for each pair of the state.

    ``log_a`` (B, L, E, N/2) or broadcast to it, ``b`` and ``c`` (B, L, N), ``v`` (B, L, E).
    """
    b, c = (torch.complex(*t.chunk(2, dim=-1)).unsqueeze(-2) for t in (b, c))  # (B, L, 1, N/2)
    h, outputs = torch.zeros_like(b[:, 0]), []
    for t in range(v.shape[1]):
        h = log_a[:, t].exp() * h + b[:, t] * v[:, t].unsqueeze(-1)
        outputs.append((c[:, t].conj() * h).sum(dim=-1).real)
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("options", STEPPED.values(), ids=STEPPED)
def test_a_state_that_turns_by_steps_is_complex(options: dict):
    """A = −rate + iω, diagonal and complex: purely imaginary in the literal form."""
    torch.manual_seed(0)
    mixer = build("mampa", LayerShape(D_MODEL), **options)
    assert isinstance(mixer, SteppedMAmPa)
    x = torch.randn(2, 17, mixer.channels, dtype=torch.float64, requires_grad=True)
    y, _, _ = mixer.recur(x, x, None, Context.of(torch.zeros(2, 17, dtype=torch.long)))
    n = mixer.options.d_state
    delta, b, c = mixer.x_proj(x).split((mixer.dt_rank, n, n), dim=-1)
    delta = mixer.dt_proj(delta)
    if mixer.options.delta == "softplus":
        delta = nn.functional.softplus(delta)
    v = delta * x if mixer.options.input_gate == "delta" else x
    rate = torch.zeros_like(mixer.omega) if mixer.A_log is None else mixer.A_log.exp()
    expected = complex_loop(torch.complex(-delta.abs()[..., None] * rate, delta[..., None] * mixer.omega), b, c, v)
    used = [p for name, p in mixer.named_parameters() if name.startswith(("x_proj", "dt_proj", "omega", "A_log"))]
    assert_same_with_gradients(y, expected, [x, *used])


@pytest.mark.parametrize("options", PATH.values(), ids=PATH)
def test_a_state_that_turns_along_a_path_is_complex(options: dict):
    torch.manual_seed(0)
    shape = LayerShape(D_MODEL, n_heads=3)
    mixer = build("mampa", shape, **{"groups": 2, "d_state": 6, **options})
    assert isinstance(mixer, PathMAmPa)
    u = torch.randn(2, 17, D_MODEL, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 17, mixer.channels, dtype=torch.float64, requires_grad=True)
    y, _, _ = mixer.recur(u, x, None, Context.of(torch.zeros(2, 17, dtype=torch.long)))
    b, c = mixer.x_proj(x).chunk(2, dim=-1)
    moved = mixer.path.movement(u)  # (B, L, H, r)
    n_blocks, groups = mixer.options.d_state // 2, mixer.options.groups
    parts, width = [], mixer.channels // (shape.n_heads * groups)
    for head in range(shape.n_heads):
        for group in range(groups):
            here = slice(group * n_blocks, (group + 1) * n_blocks)
            turn = moved[:, :, head] @ mixer.path.w_out[head, :, here] * mixer.path.omega[head, here]
            rate = 0.0 if mixer.A_log is None else mixer.A_log[head, group].exp()
            decay = (-moved[:, :, head].abs().sum(dim=-1, keepdim=True) * rate).expand_as(turn)
            channels = slice(len(parts) * width, (len(parts) + 1) * width)
            log_a = torch.complex(decay, turn).unsqueeze(-2)  # the same for all channels of the part
            parts.append(complex_loop(log_a, b + mixer.B_bias, c + mixer.C_bias, x[..., channels]))
    used = [p for name, p in mixer.named_parameters() if name.startswith(("x_proj", "path", "B_", "C_", "A_log"))]
    assert_same_with_gradients(y, torch.cat(parts, dim=-1), [u, x, *used])


@pytest.mark.parametrize("d_model", [16, 40])
def test_the_literal_form_is_a_mamba_block_with_imaginary_rates(d_model: int, monkeypatch: pytest.MonkeyPatch):
    """The block of `mambapy` with our weights, its real A exchanged for ±iω and nothing else.

    On conjugate pairs (h, h̄) the state holds N complex numbers as theirs holds N real ones, and C̄/2 adds up the pair.
    """
    oracle = pytest.importorskip("mambapy.mamba", reason="mambapy is the oracle")
    torch.manual_seed(0)
    ours = build("mampa", LayerShape(d_model), **LITERAL)
    theirs = oracle.MambaBlock(oracle.MambaConfig(d_model=d_model, n_layers=1, d_state=32)).double()
    weights = {name: weight for name, weight in ours.state_dict().items() if name != "omega"}
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["A_log"], [])

    def paired(t: Tensor) -> Tensor:
        pairs = torch.complex(*t.chunk(2, dim=-1))
        return torch.cat((pairs, pairs.conj()), dim=-1)

    def scan(x: Tensor, delta: Tensor, _: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        rates = paired(torch.cat((torch.zeros_like(ours.omega), ours.omega), dim=-1))
        y = theirs.selective_scan_seq(x, delta, rates, paired(b), paired(c).conj() / 2, d)
        assert y.imag.abs().max() < 1e-12 * y.abs().max()
        return y.real

    narrow = Tensor.float
    monkeypatch.setattr(Tensor, "float", lambda t: t if t.dtype == torch.float64 else narrow(t))  # theirs would round D
    monkeypatch.setattr(theirs, "selective_scan", scan)
    x = torch.randn(2, 20, d_model, dtype=torch.float64, requires_grad=True)
    mixed, _ = ours.mix(x, None, Context.of(torch.zeros(2, 20, dtype=torch.long)))
    expected, weight = theirs(x), torch.randn_like(mixed)
    torch.testing.assert_close(mixed, expected, rtol=1e-10, atol=1e-10)
    names = sorted(weights)
    gradients = []
    for out, mixer in ((mixed, ours), (expected, theirs)):
        parameters = dict(mixer.named_parameters())
        gradients.append(torch.autograd.grad(out, [x, ours.omega, *(parameters[name] for name in names)], weight))
    for mine, their in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-10, atol=1e-10)


def test_mampa_without_movement_is_linear_attention_without_position():
    """Δ = 0: nothing turns, and the state adds up what was written."""
    torch.manual_seed(0)
    mixer = build("mampa", LayerShape(D_MODEL), d_state=4, groups=2)
    with torch.no_grad():
        mixer.path.w_in.zero_()
    x = torch.randn(2, 9, mixer.channels, dtype=torch.float64)
    y, _, _ = mixer.recur(x[..., :D_MODEL], x, None, Context.of(torch.zeros(2, 9, dtype=torch.long)))
    b, c = mixer.x_proj(x).chunk(2, dim=-1)
    expected = ((c + mixer.C_bias) @ (b + mixer.B_bias).mT).tril() @ x
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [{}, LITERAL], ids=["default", "literal"])
def test_velocities_start_on_the_ladder(options: dict):
    mixer = LAYERS["mampa"].build(LayerShape(), LAYERS["mampa"].options(base=32.0, **options)).mixer
    omega = mixer.path.omega if isinstance(mixer, PathMAmPa) else mixer.omega[0]
    expected = lie.ladder(omega.numel(), base=32.0).float()
    torch.testing.assert_close(omega.flatten().sort(descending=True).values, expected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"d_state": 5}, "mampa rotates pairs, so d_state must be even, not 5"),
        ({"d_state": 0}, "d_state must be at least 1, not 0"),
        ({"groups": 0}, "groups must be at least 1, not 0"),
        ({"groups": 7}, "n_heads × groups is 7, which does not divide the 128 channels; change groups"),
        ({"rank": 0}, "rank must be at least 1, not 0"),
        ({"rank": 3, "groups": 1, "d_state": 4}, "rank 3 needs at least as many rotations; groups × d_state/2 is 2"),
        ({"delta": "softplus"}, "delta, input_gate and dt_rank belong to steps Δ of single channels; give rank=None"),
        ({"input_gate": "delta"}, "give rank=None"),
        ({"delta": "positive", "rank": None}, "delta must be one of softplus, signed, not 'positive'"),
        ({"omega_max": 0.0}, "omega_max must be above 0"),
        ({"base": float("nan")}, "base must be a finite number"),
        ({"conv_size": 0}, "conv_size must be at least 1"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict, sentence: str):
    with pytest.raises(mf.UserError, match=sentence):
        mf.build_model("mampa", vocab_size=21, **options)
