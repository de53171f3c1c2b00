"""The contract of a layer, the block most layers use, and the registry of layers.

A layer maps ``(x, stream, state, context)`` to ``(x, stream, state)``:

``x``        (B, L, d_model) activations.
``stream``   what passes from layer to layer beside x; a layer that does not know it hands it on untouched.
``state``    what this layer carries along the sequence (keys, coordinate, h_t, …); None at the beginning.
``context``  documents, padding and the past (`Context`).

A mixer sits in the usual `Block` unless it registers another arrangement: an SSM block has no MLP, TAPE reads
the MLP's output.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mapformers import registry
from mapformers.errors import require
from mapformers.modules.context import Context
from mapformers.modules.mixer import LayerOptions, LayerShape, Mixer
from mapformers.ops.operator import gradients_of, in_forward_mode


class RMSNorm(nn.Module):
    """x / rms(x) · gain, in float32 or better."""

    def __init__(self, size: int, eps: float = 1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        one_token = x.shape[-2] == 1 and x.dtype == self.gain.dtype and not torch.is_grad_enabled()
        if torch.compiler.is_compiling() or one_token:  # a compiler fuses it, and a single token is one call
            return nn.functional.rms_norm(x, (x.shape[-1],), self.gain, self.eps)
        if in_forward_mode():
            return _plain_norm(x, self.gain, self.eps)
        if not torch.is_grad_enabled():
            return _norm(x, self.gain, self.eps)[0]
        normed: Tensor = _RMSNorm.apply(x, self.gain, self.eps)
        return normed


class _RMSNorm(torch.autograd.Function):
    """Left to itself, autograd keeps five tensors of the size of x; x is enough, x̂ = x / rms(x) being made again: a
    step of a small model takes 6 % less time and 14 % less memory (`mapformers bench ops`, docs/results/bench-ops.md).

    With g = gain ⊙ dy: dx = (g − x̂ · mean(g ⊙ x̂)) / rms(x), dgain = Σ dy ⊙ x̂.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        normed, per_rms = _norm(x, gain, eps)
        ctx.save_for_backward(x, gain, per_rms)
        ctx.eps = eps
        return normed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, per_rms = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *gradients_of(partial(_plain_norm, eps=ctx.eps), (x, gain), ctx.needs_input_grad[:2], (grad,)), None
        unit = x.to(per_rms.dtype) * per_rms
        product = grad * unit
        d_gain = product.flatten(0, -2).sum(dim=0)
        g = grad * gain
        along = torch.mul(g, unit, out=product).mean(dim=-1, keepdim=True)
        return g.addcmul_(unit, along, value=-1).mul_(per_rms).to(grad.dtype), d_gain.to(gain.dtype), None


def _norm(x: Tensor, gain: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm, and 1/rms(x) of which it was made, with as few passes over x as there can be."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    per_rms = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (wide * per_rms).mul_(gain).to(x.dtype), per_rms


def _plain_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * (wide.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * gain).to(x.dtype)


class MLP(nn.Module):
    """GELU MLP, whose hidden width is mlp_ratio · d_model."""

    def __init__(self, shape: LayerShape):
        super().__init__()
        self.up = linear(shape.d_model, shape.mlp_ratio * shape.d_model)
        self.down = linear(shape.mlp_ratio * shape.d_model, shape.d_model, residual_of=shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


def linear(n_in: int, n_out: int, residual_of: LayerShape | None = None) -> nn.Linear:
    """A projection without bias, N(0, 1/n_in); one that writes to the residual stream is 1/√(2·layers) smaller."""
    layer = nn.Linear(n_in, n_out, bias=False)
    shrink = 1.0 if residual_of is None else 1 / math.sqrt(2 * residual_of.n_layers)
    nn.init.normal_(layer.weight, std=shrink / math.sqrt(n_in))
    return layer


class Block(nn.Module):
    """x ← x + mixer(norm(x)); x ← x + MLP(norm(x)): pre-norm, RMSNorm, GELU, no biases."""

    def __init__(self, shape: LayerShape, mixer: Mixer):
        super().__init__()
        self.norm_mixer = RMSNorm(shape.d_model)
        self.mixer: nn.Module = mixer  # called, so that hooks on it fire
        self.norm_mlp = RMSNorm(shape.d_model)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, stream: Any, state: Any, context: Context) -> tuple[Tensor, Any, Any]:
        mixed, state = self.mixer(self.norm_mixer(x), state=state, context=context)
        x = x + mixed
        return x + self.mlp(self.norm_mlp(x)), stream, state


class MixerOnly(nn.Module):
    """x ← x + mixer(norm(x)), and no MLP: the arrangement of state-space models."""

    def __init__(self, shape: LayerShape, mixer: Mixer):
        super().__init__()
        self.norm = RMSNorm(shape.d_model)
        self.mixer: nn.Module = mixer  # called, so that hooks on it fire

    def forward(self, x: Tensor, stream: Any, state: Any, context: Context) -> tuple[Tensor, Any, Any]:
        mixed, state = self.mixer(self.norm(x), state=state, context=context)
        return x + mixed, stream, state


Build = Callable[[LayerShape, Any], nn.Module]


@dataclass(frozen=True)
class LayerEntry:
    """A registered layer: its class, how a decoder's layer is built from it, and the option sets worth testing."""

    name: str
    layer: type[nn.Module]
    options: type[LayerOptions]
    build: Build
    variants: Sequence[Mapping[str, Any]]
    benchmarked: Sequence[Mapping[str, Any]]

    @property
    def summary(self) -> str:
        """The first line of the class's documentation."""
        return (self.layer.__doc__ or "").partition("\n")[0]


LAYERS: registry.Registry[LayerEntry] = registry.LAYERS


def register_layer(
    name: str,
    layer: Any,
    *,
    arrangement: Callable[[LayerShape, Any], nn.Module] = Block,
    build: Build | None = None,
    variants: Sequence[Mapping[str, Any]] = ({},),
    benchmarked: Sequence[Mapping[str, Any]] = ({},),
) -> None:
    """Make a layer known by name.

    ``layer``        the class that `mf.layers` offers: a `Mixer`, or a class with the same interface.
    ``arrangement``  what a decoder puts the mixer in.
    ``build``        (shape, options) -> a module that keeps the contract above, where the two are not enough.
    ``variants``     the option sets that tests walk through, ``benchmarked`` those that are timed.
    """
    require(len(variants) > 0, f"Model {name!r} must register at least one variant.")

    def in_arrangement(shape: LayerShape, options: LayerOptions) -> nn.Module:
        return arrangement(shape, layer.of_shape(shape, options))

    LAYERS.add(name, LayerEntry(name, layer, layer.Options, build or in_arrangement, variants, benchmarked))
