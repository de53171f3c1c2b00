"""Measure a model of your own on a task, beside players that answer by rule.

    python examples/evaluate_your_model.py                  # about half a minute on one core
    python examples/evaluate_your_model.py --steps 1000     # trains the Llama longer

`mf.evaluate` takes anything that maps tokens (B, L) to logits (B, L, vocab), or to an object with `.logits`. Here:

- a small Llama of `transformers`, built from a config (nothing is downloaded) and trained for a moment;
- a plain function, a rule of thumb for walks;
- the players of the task: what a perfect map gives, and what can be had without one.

The task is 2D navigation: a walk on a grid, an action and then what is found there. Scored is what is expected on
coming back to a cell that is not empty.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import mapformers as mf

console = Console()


def llama(task: mf.Task[Any], steps: int) -> torch.nn.Module | None:
    """A Llama trained on iid batches of the task; None where `transformers` is not installed."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        console.print("Llama is left out: it needs transformers (pip install transformers).")
        return None
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=task.vocab_size,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.1,  # the usual 0.02 needs more patience than an example has
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        batch = task.sample("iid", batch_size=32, generator=generator)
        loss = task.loss(model(batch.tokens).logits, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            console.print(f"Llama, step {step + 1} of {steps}: loss {loss.item():.3f}", highlight=False)
    return model


def turned_back(task: mf.Task[Any]) -> Callable[[Tensor], Tensor]:
    """A rule of thumb: after a turn back one sees again what was seen two steps ago. Otherwise it guesses."""
    undoes = {action: action ^ 1 for action in task.action_ids}  # actions come in pairs: → ←, ↑ ↓
    guess = task.token_names.index("A")

    def answer(tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, task.vocab_size)
        for row, sequence in enumerate(tokens.tolist()):  # a₁ o₁ a₂ o₂ …
            for place in range(0, len(sequence), 2):
                back = place >= 4 and sequence[place] == undoes[sequence[place - 2]]
                logits[row, place, sequence[place - 3] if back else guess] = 1.0
        return logits

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate your own model on 2D navigation.")
    parser.add_argument("--steps", type=int, default=300, help="training steps of the Llama")
    parser.add_argument("--sequences", type=int, default=64, help="fresh sequences of every split")
    parser.add_argument("--walk", type=int, default=32, help="steps of a walk in the iid split")
    arguments = parser.parse_args()

    task = mf.build_task("navigation", dims=2, steps=arguments.walk, grid=8)
    splits = ["iid", "ood-dense", "ood-sparse"]
    table = Table(title="Navigation, revisits to cells that are not empty", title_justify="left")
    for heading in ("who", *splits):
        table.add_column(heading, justify="left" if heading == "who" else "right")

    def add(label: str, model_for: Callable[[str], Any]) -> None:
        scores = [mf.evaluate(model_for(split), task, split, n_sequences=arguments.sequences) for split in splits]
        table.add_row(label, *(f"{s['accuracy']:.3f}" if s["accuracy"].count else "–" for s in scores))

    network = llama(task, arguments.steps)
    if network is not None:
        add(f"Llama after {arguments.steps} steps", lambda split: network)
    rule = turned_back(task)
    add("own function: a turn back", lambda split: rule)
    table.add_section()
    for name in mf.players.names(task):
        add(f"player: {name}", lambda split, name=name: mf.players.build(name, task, split))
    console.print(table)


if __name__ == "__main__":
    main()
