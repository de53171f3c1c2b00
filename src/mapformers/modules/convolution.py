"""The causal convolution over the last few tokens of a document, which `mamba`, `mamba2`, `mampa` and `path` share."""

import torch
from torch import Tensor

from mapformers.modules.context import Context


def causal_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, tail: Tensor | None, context: Context
) -> tuple[Tensor, Tensor]:
    """Depthwise: each channel is a weighted sum of itself over the last few real tokens of its document.

    ``x`` (B, L, C), ``weight`` (C, size), ``bias`` (C). Returned are the sums, and the tail (B, size − 1, C): what the
    next token will see beside itself; before the first token there are zeros.
    """
    before, length = weight.shape[-1] - 1, x.shape[1]
    if tail is None:
        tail = x.new_zeros(len(x), before, x.shape[-1])
    seen = torch.cat((tail, x), dim=1)  # (B, size − 1 + L, C)
    plain = context.reset is None and context.padding_mask is None
    if plain and length == 1:
        out = (seen * weight.mT).sum(dim=1, keepdim=True)
        return out if bias is None else out + bias, seen[:, 1:]
    if plain:
        taps = [seen[:, i : i + length] for i in range(before)]
        tail = seen[:, length:]
    else:
        blank = torch.cat((seen, torch.zeros_like(x[:, :1])), dim=1)
        places = _earlier_tokens(before, context).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])
        taken = [blank.gather(1, at) for at in places.unbind(2)]
        taps = [tap[:, :-1] for tap in taken]
        tail = torch.stack([tap[:, -1] for tap in taken], dim=1) if taken else tail
    out = torch.zeros_like(x) if bias is None else bias.expand_as(x)
    for tap, factor in zip((*taps, x), weight.unbind(-1)):
        out = torch.addcmul(out, tap, factor)
    return out, tail


def convolution_reference(x: Tensor, weight: Tensor, bias: Tensor | None, context: Context) -> Tensor:
    """Row by row and token by token, with a list of the real tokens of the document so far."""
    size = weight.shape[-1]
    rows = []
    for row in range(len(x)):
        earlier: list[Tensor] = []
        outputs = []
        for t in range(x.shape[1]):
            if context.reset is not None and context.reset[row, t]:
                earlier = []
            window = torch.stack([*[torch.zeros_like(x[row, t])] * size, *earlier, x[row, t]][-size:], dim=-1)
            outputs.append((window * weight).sum(dim=-1) + (0 if bias is None else bias))
            if context.padding_mask is None or context.padding_mask[row, t]:
                earlier.append(x[row, t])
        rows.append(torch.stack(outputs))
    return torch.stack(rows)


def _earlier_tokens(n: int, context: Context) -> Tensor:
    """(B, L + 1, n) where the ``n`` latest real tokens of its document stand, for each token and for the next one.

    Places count from the tail of ``n`` tokens that precedes the chunk; the place after the last token means none.
    """
    batch, length, device = context.batch_size, context.length, context.device
    flag = torch.ones(batch, n + length + 1, dtype=torch.bool, device=device)
    document = torch.zeros(batch, n + length + 1, dtype=torch.long, device=device)
    if context.padding_mask is not None:
        flag[:, n:-1] = context.padding_mask
    if context.reset is not None:
        document[:, n:-1] = context.reset
    document = document.cumsum(dim=1)
    real_first = torch.argsort(~flag, dim=1, stable=True)
    earlier = flag.long().cumsum(dim=1)[:, n:] - flag[:, n:].long()  # how many real ones come before; n at least
    back = torch.arange(n, 0, -1, device=device)
    places = real_first.gather(1, (earlier.unsqueeze(-1) - back).flatten(1)).unflatten(1, (-1, n))
    same = document.gather(1, places.flatten(1)).view_as(places) == document[:, n:].unsqueeze(-1)
    return torch.where(same, places, n + length)
