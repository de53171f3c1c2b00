"""Small models for these tests; what starts at zero is made random, or it would hide mistakes."""

from typing import Any

import torch

from mapformers.hf import MapFormerConfig, MapFormerForCausalLM

VOCABULARY = 40
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("mapwm", {"rank": 2}),
    ("rope", {}),
    ("mapem", {"rank": 2}),
    ("mamba", {}),
    ("tape", {}),
    ("tem-t", {"action_ids": [1, 2]}),
]
NAMES = [name for name, _ in VARIANTS]


def config(name: str = "mapwm", **settings: Any) -> MapFormerConfig:
    sizes = {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 2}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    return MapFormerConfig(name, **{**sizes, **tokens, **dict(VARIANTS)[name], **settings})


def model(name: str = "mapwm", seed: int = 0, **settings: Any) -> MapFormerForCausalLM:
    torch.manual_seed(seed)
    built = MapFormerForCausalLM(config(name, **settings)).eval()
    torch.manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return built


def recompute(net: Any, reentrant: bool) -> None:
    """Gradient checkpointing, by the name it has had since transformers 5.23 where there is one."""
    enable = getattr(net, "activation_checkpointing_enable", None) or net.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})


def tokens(batch: int = 2, length: int = 9, seed: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)
