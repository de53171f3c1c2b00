"""A language-model-like stack of your own with a MapFormer layer inside: train it, then stream it.

python examples/own_model.py [--steps 300]
"""

import argparse
import tempfile

import torch
from torch import Tensor, nn

import mapformers as mf


class OwnBlock(nn.Module):
    """Your norm, your MLP, your residuals; `mf.layers.MapWM` looks along the sequence."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.attention = mf.layers.MapWM(d_model=d_model, n_heads=n_heads, rank=2)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.SiLU(), nn.Linear(2 * d_model, d_model))

    def forward(self, x: Tensor, state=None):
        mixed, state = self.attention(self.norms[0](x), state=state, return_state=True)
        x = x + mixed
        return x + self.mlp(self.norms[1](x)), state


class OwnModel(nn.Module):
    """tokens (B, L) -> logits (B, L, vocab): all that training and measuring ask for."""

    def __init__(self, vocab_size: int, d_model: int = 64, n_heads: int = 1):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.block = OwnBlock(d_model, n_heads)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.head.weight.data.copy_(self.embedding.weight / 2.4)  # a token that is copied is at once predicted

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.block(self.embedding(tokens))[0])

    def stream(self, tokens: Tensor, state=None):
        x, state = self.block(self.embedding(tokens), state)
        return self.head(x), state


def main() -> None:
    steps = argparse.ArgumentParser()
    steps.add_argument("--steps", type=int, default=300)
    wanted = steps.parse_args().steps
    torch.manual_seed(0)
    task = mf.build_task("navigation", dims=2, steps=64, grid=16)
    model, batch = OwnModel(task.vocab_size), 32
    budget = {"sequences": wanted * batch, "batch_size": batch, "zero_mean_steps": wanted // 4, "warmup_steps": 20}
    with tempfile.TemporaryDirectory() as folder:  # or a folder to keep: mf.load(folder, model) brings it back
        run = mf.train("navigation", model, dims=2, steps=64, grid=16, out=f"{folder}/run", **budget)
    print("accuracy on iid:", round(run.result["splits"]["iid"]["accuracy"]["value"], 3))

    tokens = task.sample("iid", 1, torch.Generator().manual_seed(0)).tokens
    state, pieces = None, []
    for piece in tokens.split(16, dim=1):  # as they arrive
        logits, state = model.stream(piece, state)
        pieces.append(logits)
        state = state.detach()
    print("streamed = at once:", torch.allclose(torch.cat(pieces, dim=1), model(tokens), atol=1e-4))


if __name__ == "__main__":
    main()
