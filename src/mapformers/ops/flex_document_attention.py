"""Causal attention within packed documents for a compiler: FlexAttention, which works out the mask block by block.

`document_attention` sorts documents by their lengths, which a compiler does not know. But documents lie one after the
other, so the keys that a query sees are one stretch. Where its document begins says which, and a compiled kernel asks
that while it runs: neither mask nor logits of L × L are ever in memory, only four numbers for each pair of blocks, of
which those that no query sees are left out. `document_attention.reference` is the definition here too.
"""

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128  # queries, and keys, of a block
SMALLEST_HEAD = 16  # that a kernel on CUDA takes
HAS_AVX = torch.backends.cpu.get_cpu_capability().startswith("AVX")
IS_TRIED = torch.__version__ >= "2.13"  # some kernels of earlier versions refuse sizes of heads, or shared memory


def block_mask_of(reset: Tensor, self_key: bool = True) -> BlockMask:
    """Which blocks of keys each block of queries sees, in part or as a whole, from (B, L) where documents begin."""
    length = reset.shape[1]
    query = torch.arange(length, device=reset.device)
    first = torch.where(reset, query, 0).cummax(dim=1).values  # (B, L) the first key that each query sees
    last = _last(query, first, self_key).expand_as(first)
    start = torch.arange(0, length, BLOCK, device=reset.device)
    end = (start + BLOCK - 1).clamp(max=length - 1)
    # Neither number falls from one query to the next, so those at the ends of a block hold for all of it.
    some = (end >= first[:, start, None]) & (start <= last[:, end, None])  # (B, blocks of queries, blocks of keys)
    whole = (start >= first[:, end, None]) & (end <= last[:, start, None])

    def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        begin = first[b, query]
        return (begin <= key) & (key <= _last(query, begin, self_key))

    return BlockMask.from_kv_blocks(
        *_listed(some & ~whole), *_listed(whole), BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=(length, length)
    )


def _last(query: Tensor, first: Tensor, self_key: bool) -> Tensor:
    """The last key that a query sees: itself, or the one before it if that is of the same document."""
    return query if self_key else torch.maximum(query - 1, first)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row are chosen, (B, 1, rows), and their numbers before those of all others."""
    order = chosen.int().argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32).unsqueeze(1), order.int().unsqueeze(1)


def flex_document_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, block_mask: BlockMask) -> Tensor:
    """softmax(scale · q kᵀ) v over earlier tokens of the same document, (B, H, L, D) each."""
    kind = q.device.type  # fused attention is one of the operations that autocast knows, in all its versions
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else q.dtype
    return flex_attention(q.to(dtype), k.to(dtype), v.to(dtype), block_mask=block_mask, scale=scale)


def flex_runs_on(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a compiler has a kernel for these: on CUDA, and on an x86 processor if nothing is to be learned.

    What is exported is for other kernels than its own.
    """
    if not IS_TRIED or q.dtype == torch.float64 or torch.compiler.is_exporting():
        return False
    if q.device.type == "cuda":
        return q.shape[-1] >= SMALLEST_HEAD
    on_processor = q.device.type == "cpu" and HAS_AVX and not torch.xpu.is_available()
    return on_processor and not (q.requires_grad or k.requires_grad or v.requires_grad)
