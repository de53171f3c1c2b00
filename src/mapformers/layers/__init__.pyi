# Written by scripts/layer_types.py from the options of every layer; change those, then run it again.
import math
from typing import Any, Literal

from torch import Tensor, nn

from mapformers.modules.context import Context
from mapformers.modules.mixer import Mixer

def classes() -> dict[str, type]: ...

class CoPE(Mixer):
    """Each query decides which keys count, and a key is as far away as the sum of what counts from it on.

    g_ij = σ(q_i·k_j/√D), p_ij = Σ_{t=j..i} g_it, at most npos − 1. Of whole positions the logit is q_i·e[p], in between
    it is interpolated, and the gradient reaches p through the weights of that interpolation.

    A gate is 0 wherever the query may not look: the future, other documents, padding. Without ``self_key`` this holds
    of the query's own key too: p_ij = Σ_{t=j..i−1} g_it, so the token before the query is at g_{i,i−1}, not at
    g_{i,i−1} + g_ii; the first token of a document, which sees itself alone, is at g_ii. The temperature divides the
    sum of both logits and leaves the gates as they are.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        npos: Positions that are told apart, 0 to npos − 1; whatever lies farther back is at the last one.
        cope_scaling: What 1/√D scales: content and position (the authors' code), or the content alone (their appendix).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        npos: int = 64,
        cope_scaling: Literal['all', 'content'] = 'all',
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class LSTM(Mixer):
    """(i, f, g, o) = W_ih x_t + W_hh h_{t−1} + b; c_t = σ(f) c_{t−1} + σ(i) tanh(g); h_t = σ(o) tanh(c_t).

    As `torch.nn.LSTM` computes it and starts it, with one bias in place of two that are added. h_t is
    projected back to d_model. It sits in the same block as attention (norm, mixer, norm, MLP): with H = d_model a block
    has 17·d_model² weights, and one of attention 12.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        hidden: Size of the hidden state, H (None: n_heads × head_dim, which is d_model unless head_dim is given).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        hidden: int | None = None,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class Mamba(Mixer):
    """Ā_t = exp(−|Δ_t| exp(A_log)), diagonal and real: it can forget, and cannot turn back (A.3).

    B̄_t = Δ_t B_t, as in the authors' code.  # paper: zero-order hold, (ΔA)⁻¹(exp(ΔA) − 1)ΔB; here: its first order

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        d_state: State size of a channel, N.
        expand: Expansion factor: the layer has E = expand · d_model channels.
        conv: A causal convolution over the last few tokens before anything is read from them.
        conv_size: Tokens that the convolution sees.
        dt_rank: Numbers from which the steps Δ of all channels are made (None: d_model/16, rounded up).
        delta: The step Δ of a channel: softplus(·), above 0, or signed, so that a step can be taken back.
        input_gate: What scales the input: B̄ = ΔB, so that what does not step writes nothing, or B̄ = B.
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        d_state: int = 16,
        expand: int = 2,
        conv: bool = True,
        conv_size: int = 4,
        dt_rank: int | None = None,
        delta: Literal['softplus', 'signed'] = 'softplus',
        input_gate: Literal['delta', 'none'] = 'delta',
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class Mamba2(Mixer):
    """h_t = exp(−Δ_t exp(A_log)) h_{t−1} + Δ_t B_t x_tᵀ, y_t = C_tᵀ h_t + D x_t: one Δ, A and D per head.

    (z, x, B, C, Δ) = in_proj(u); x, B, C = SiLU(conv(·)); Δ = softplus(Δ + dt_bias);
    out = out_proj(RMSNorm(y ⊙ SiLU(z))). B and C are those of all heads (one group). Names and shapes of the weights
    are those of the authors' code. There is no MLP: 8.4·d_model² weights at d_model 64, where a block of attention has
    12·d_model².

    Since a decay is one number per head, the recurrence is attention without softmax under a decaying mask
    (`linear_attention`): products of matrices, and no scan.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        d_state: State size of a channel, N.
        expand: Expansion factor: the layer has E = expand · d_model channels.
        channels_per_head: Channels of a head, which share a step Δ and a decay, P (None: so many that there are expand × n_heads heads).
        conv: A causal convolution over the last few tokens of x, B and C.
        conv_size: Tokens that the convolution sees.
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        d_state: int = 64,
        expand: int = 2,
        channels_per_head: int | None = None,
        conv: bool = True,
        conv_size: int = 4,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class MAmPa(Mixer):
    """A state-space model whose state turns. ``MAmPa(…)`` is one of its two forms, as ``pathlib.Path(…)`` is.

    With a rank it is `PathMAmPa`, with ``rank=None`` `SteppedMAmPa`.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        d_state: Numbers of state per channel, N; two for each rotation.
        expand: Expansion factor: the layer has E = expand · d_model channels.
        conv: A causal convolution over the last few tokens before anything is read from them.
        conv_size: Tokens that the convolution sees.
        dt_rank: Numbers from which the steps Δ of all channels are made (None: d_model/16, rounded up).
        delta: The step Δ of a channel: softplus(·), above 0, or signed, so that a step can be taken back.
        input_gate: What scales the input: B̄ = ΔB, so that what does not step writes nothing, or B̄ = B.
        omega_max: Fastest angular velocity at the start.
        base: Steps after which the slowest block closes its circle at the start.
        learn_omega: ω is learned, as in the paper; without it ω stays as it starts.
        rank: Dimensions of the inner movement Δ_in, shared by the channels of a head; None: a step Δ for each channel.
        groups: With a rank: in how many groups the channels of a head fall; each turns at velocities of its own.
        decay: Whether the state also decays, by exp(−|Δ|·exp(A_log)).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        d_state: int = 32,
        expand: int = 2,
        conv: bool = False,
        conv_size: int = 4,
        dt_rank: int | None = None,
        delta: Literal['softplus', 'signed'] = 'signed',
        input_gate: Literal['delta', 'none'] = 'none',
        omega_max: float = 2 * math.pi,
        base: float = 64.0,
        learn_omega: bool = True,
        rank: int | None = 2,
        groups: int = 8,
        decay: bool = False,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class MapEM(Mixer):
    """Its places are q_p = R(θ_t) q₀ᵖ and k_p = R(θ_t) k₀ᵖ: absolute position, in a population of its own.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        omega_max: Fastest angular velocity at the start.
        base: Steps after which the slowest block closes its circle at the start.
        learn_omega: ω is learned, as in the paper; without it ω stays as it starts.
        rank: Dimensions of the inner movement Δ_in.
        path_start: random: W_in is drawn at random, and each inner dimension has its own ladder of ω from omega_max to 2π/base. rope: the layer starts as RoPE, and the path departs from there: W_in = 0, every token moves by 1, and ω is RoPE's ladder of rope_base, whose blocks go to the inner dimensions in turn; omega_max and base are not used then.
        rope_base: With path_start=rope: the base of RoPE's frequencies at the start, ω_i = rope_base^(−i/n_b).
        attend: What is compared: observation and structure (os), structure alone (s), observation alone (o), or the two by gates that every token learns to set (gated).
        origins: q₀ᵖ and k₀ᵖ: two parameters that start equal or independent, or a single shared one (A.7).
        origin_std: Spread of the origins at the start (None: 0.4 with os, 0.8 with s).
        qk_scale: W_q and W_k of a copying start are this times N(0, 1/n_in).
        learn_sharpness: Whether each head learns a factor on the product of its attentions, without regard to length.
        project_position: A learned projection C of the position before it is compared (A.4).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        omega_max: float = 2 * math.pi,
        base: float = 64.0,
        learn_omega: bool = True,
        rank: int = 2,
        path_start: Literal['random', 'rope'] = 'random',
        rope_base: float = 10000.0,
        attend: Literal['os', 's', 'o', 'gated'] = 'os',
        origins: Literal['equal', 'independent', 'shared'] = 'equal',
        origin_std: float | None = None,
        qk_scale: float = 0.5,
        learn_sharpness: bool = False,
        project_position: bool = False,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class MapEMNC(Mixer):
    """Its places are q_p = P_t q₀ᵖ and k_p = P_t k₀ᵖ with P_t = W_t … W_1.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        omega_max: Fastest angular velocity at the start.
        base: Steps after which the slowest block closes its circle at the start.
        learn_omega: ω is learned, as in the paper; without it ω stays as it starts.
        block: n of SO(n): a head is cut into blocks of this size.
        rank: Dimensions of the inner movement Δ_in (None: no bottleneck, one number per generator and block).
        attend: What is compared: observation and structure (os), structure alone (s), observation alone (o), or the two by gates that every token learns to set (gated).
        origins: q₀ᵖ and k₀ᵖ: two parameters that start equal or independent, or a single shared one (A.7).
        origin_std: Spread of the origins at the start (None: 0.4 with os, 0.8 with s).
        qk_scale: W_q and W_k of a copying start are this times N(0, 1/n_in).
        learn_sharpness: Whether each head learns a factor on the product of its attentions, without regard to length.
        project_position: A learned projection C of the position before it is compared (A.4).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        omega_max: float = 2 * math.pi,
        base: float = 64.0,
        learn_omega: bool = True,
        block: Literal[2, 3, 4, 6, 8] = 4,
        rank: int | None = None,
        attend: Literal['os', 's', 'o', 'gated'] = 'os',
        origins: Literal['equal', 'independent', 'shared'] = 'equal',
        origin_std: float | None = None,
        qk_scale: float = 0.5,
        learn_sharpness: bool = False,
        project_position: bool = False,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class MapWM(Mixer):
    """Queries and keys are rotated by the path integral of what the tokens do, instead of by their index.

    ⟨R(θ_i) q_i, R(θ_j) k_j⟩ = q_iᵀ R(θ_j − θ_i) k_j: only the displacement between i and j counts.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        omega_max: Fastest angular velocity at the start.
        base: Steps after which the slowest block closes its circle at the start.
        learn_omega: ω is learned, as in the paper; without it ω stays as it starts.
        rank: Dimensions of the inner movement Δ_in.
        path_start: random: W_in is drawn at random, and each inner dimension has its own ladder of ω from omega_max to 2π/base. rope: the layer starts as RoPE, and the path departs from there: W_in = 0, every token moves by 1, and ω is RoPE's ladder of rope_base, whose blocks go to the inner dimensions in turn; omega_max and base are not used then.
        rope_base: With path_start=rope: the base of RoPE's frequencies at the start, ω_i = rope_base^(−i/n_b).
        decay: Whether what lies far along the path also fades, each rotation block at a learned rate.
        softmax: Softmax over the keys; without it attention is linear, Σ_j ⟨q_i, R k_j⟩ v_j, which is the rotation SSM (A.5).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        omega_max: float = 2 * math.pi,
        base: float = 64.0,
        learn_omega: bool = True,
        rank: int = 2,
        path_start: Literal['random', 'rope'] = 'random',
        rope_base: float = 10000.0,
        decay: bool = False,
        softmax: bool = True,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class MapWMNC(Mixer):
    """q_iᵀ W_i … W_{j+1} k_j = ⟨P_iᵀ q_i, P_jᵀ k_j⟩, because W_i … W_{j+1} = P_i P_jᵀ for orthogonal P_t = W_t … W_1.

    So queries and keys are turned by the *transposed* product, and any fused attention does the rest. With block 2 this
    is `MapWM` with Δ negated: there a key is carried forward to the query, here the query back to the key.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        omega_max: Fastest angular velocity at the start.
        base: Steps after which the slowest block closes its circle at the start.
        learn_omega: ω is learned, as in the paper; without it ω stays as it starts.
        block: n of SO(n): a head is cut into blocks of this size.
        rank: Dimensions of the inner movement Δ_in (None: no bottleneck, one number per generator and block).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        omega_max: float = 2 * math.pi,
        base: float = 64.0,
        learn_omega: bool = True,
        block: Literal[2, 3, 4, 6, 8] = 4,
        rank: int | None = None,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class NoPE(Mixer):
    """softmax(q kᵀ/√D) v: the limit Δ = 0 of `mapwm`.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class PaTH(Mixer):
    """softmax(s) v with s_ij = k_jᵀ H_{j+1} … H_i q_i / √D, j ≤ i.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        conv: Whether w_t also sees the two tokens before, by a convolution and SiLU.
        path_rank: Dimensions of the bottleneck through which w_t is read from x_t.
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        conv: bool = True,
        path_rank: int = 32,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class RoPE(Mixer):
    """Queries and keys are rotated by their index: the path integral of a movement that is 1 for every token.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        rope_base: Base of the frequencies: ω_i = rope_base^(−i/n_b).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        rope_base: float = 10000.0,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class StackRNN(Mixer):
    """s_t[i] = a_push s_{t−1}[i − 1] + a_pop s_{t−1}[i + 1] (+ a_noop s_{t−1}[i]): a stack that is moved by a mean.

    h_t = cell(x_t, h_{t−1} + W_s s_{t−1}[0]), a = softmax(W_a h_t), what is pushed is s_{t−1}[−1] = σ(W_n h_t), and
    below the bottom there is 0. The equations are those of Suzgun et al. (2019) with the softmax gate, after Joulin &
    Mikolov (2015); ``controller="lstm"`` is their Stack-LSTM, and they have no no-op. Each head has a stack and actions
    of its own; theirs is one head. As there, h_t has not seen the stack that its own actions make. So to know the top
    after a pop, h itself keeps the top, and the stack what lies below (`tests/unit/test_stack_by_hand.py`).

    It starts as `torch.nn.RNN`, `LSTM` and `Linear` do, and sits in the same block as attention (norm, mixer, norm,
    MLP): with H = d_model = 64 a block has 11.4·d_model² weights, with an LSTM 17.4, and one of attention 12.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        controller: What reads the stack and decides: a plain recurrent network, or an LSTM.
        noop: A third action beside push and pop, that leaves the stack as it is.
        stack_depth: Cells of a stack. What is pushed into a full stack takes the place of what lies at its bottom, which is lost.
        stack_width: Numbers in a cell.
        hidden: Size of the hidden state, H (None: n_heads × head_dim, which is d_model unless head_dim is given).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        controller: Literal['rnn', 'lstm'] = 'rnn',
        noop: bool = False,
        stack_depth: int = 64,
        stack_width: int = 8,
        hidden: int | None = None,
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...

class TAPE(nn.Module):
    """A whole layer for one's own model: norm, attention, norm and MLP, since its update reads the MLP's output.

    ``last``  whether no TAPE layer follows: then nothing would read an update, and none is built.

    Examples:
        >>> first, second = TAPE(64, 4), TAPE(64, 4, last=True)
        >>> x, stream = first(torch.randn(2, 10, 64), return_stream=True)
        >>> y = second(x, stream=stream)

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        mlp_ratio: Width of the MLP over d_model.
        last: Whether no TAPE layer follows: then no update is built, since nothing would read it.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        self_key: A query attends to its own token too; without it to strictly earlier ones (a departure from the paper).
        rope_base: Base of the frequencies: ω_i = rope_base^(−i/n_b).
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        mlp_ratio: int = 4,
        last: bool = False,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        self_key: bool = True,
        rope_base: float = 10000.0,
    ) -> None: ...
    def forward(self, x: Tensor, **settings: Any) -> Any: ...

class TemT(Mixer):
    """e_t = norm(act(e_{t−1} W_a)) at an action a, e_t = e_{t−1} elsewhere; q = k = e W_e, v = x W_x.

    y_t = softmax(q_t K_{<t}ᵀ/√D) V_{<t} over the observations strictly earlier in the document; 0 where there are none.
    Every head moves on a map of its own, with its own W_a, W_e and start e_0. The layer norm has no parameters. As W_a
    counts at its own token, the query at an action already stands where the next observation will be made.

    Args:
        d_model: Width of the activations.
        n_heads: Heads, each with a map or a state of its own.
        head_dim: Size of a head (None: d_model / n_heads).
        n_layers: How many layers add to the same residual stream: what is added starts smaller the more there are.
        causal: False: a token also sees later ones, where the layer can.
        attn_temperature: Divides the final attention logits, once.
        length_scaling: log: the logits of a query that sees n keys are multiplied by s·log n, with s learned for each head, because a softmax over more keys is flatter. none: as in the paper.
        typical_length: The number of keys at which length_scaling changes nothing at the start: s starts at 1/log(typical_length).
        init: copying: a head starts by copying what it sees, from all tokens equally; ordinary: all weights N(0, 1/n_in).
        action_ids: The tokens that are actions (those of the task); a model cannot be built without.
        act: What follows the matrix of an action, before the norm.
    """
    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        head_dim: int | None = None,
        n_layers: int = 1,
        causal: bool = True,
        attn_temperature: float = 1.0,
        length_scaling: Literal['none', 'log'] = 'none',
        typical_length: int = 256,
        init: Literal['copying', 'ordinary'] = 'copying',
        action_ids: tuple[int, ...] = (),
        act: Literal['linear', 'relu', 'tanh'] = 'linear',
    ) -> None: ...
    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...
    def reference(self, x: Tensor, context: Context) -> Tensor: ...
