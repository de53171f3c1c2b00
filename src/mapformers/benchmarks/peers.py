"""Others' models of the same size, timed beside ours where their packages are installed."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from mapformers.benchmarks.size import Size


@dataclass(frozen=True)
class Peer:
    package: str
    build: Callable[[Size], nn.Module]

    def is_there(self) -> bool:
        return find_spec(self.package) is not None


def llama(size: Size) -> nn.Module:
    """Llama of `transformers` with fused attention and as many parameters as `rope`: its gated MLP has three matrices
    of 8/3 the width where ours has two of 4."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size.vocab_size,
        hidden_size=size.d_model,
        intermediate_size=8 * size.d_model // 3,
        num_hidden_layers=size.n_layers,
        num_attention_heads=size.n_heads,
        max_position_embeddings=size.length,
        attn_implementation="sdpa",  # type: ignore[call-arg]
        use_cache=False,
    )
    return LlamaForCausalLM(config)


class MambaPy(nn.Module):
    """The blocks of `mambapy`, with its parallel scan, between an embedding and a head."""

    def __init__(self, size: Size):
        from mambapy.mamba import Mamba, MambaConfig

        super().__init__()
        self.embedding = nn.Embedding(size.vocab_size, size.d_model)
        self.blocks: Any = Mamba(MambaConfig(d_model=size.d_model, n_layers=size.n_layers))
        self.norm = nn.RMSNorm(size.d_model)
        self.head = nn.Linear(size.d_model, size.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.embedding(tokens))))
        return logits


PEERS = {"Llama": Peer("transformers", llama), "mambapy": Peer("mambapy", MambaPy)}
