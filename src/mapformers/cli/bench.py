"""`mapformers bench`: how fast is each mixer here?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import tyro
from rich.console import Console
from rich.table import Table

from mapformers.benchmarks.throughput import SIZES, throughput
from mapformers.cli.parse import parse
from mapformers.errors import require

DESCRIPTION = """Training throughput of every registered mixer as a ratio to rope, medians of interleaved repeats.

  mapformers bench throughput --size navigation
"""


@dataclass(frozen=True)
class Arguments:
    name: tyro.conf.Positional[Literal["throughput"]] = "throughput"
    """Which benchmark."""
    size: Literal["smoke", "navigation", "speed"] = "navigation"
    """navigation: 1 layer of 64, batch 128 x 256; speed: the paper's 12 layers of 768, length 256, small batch."""
    repeats: int = 10
    """Steps of each mixer."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, "mapformers bench", DESCRIPTION)
    require(asked.repeats >= 1, f"--repeats must be at least 1, not {asked.repeats}.")
    size = SIZES[asked.size]
    table = Table(
        title=f"training, {size.n_layers} layers of {size.d_model}, batch {size.batch_size} x {size.length}, "
        f"{torch.get_num_threads()} threads",
        title_justify="left",
    )
    for heading in ("mixer", "seconds a step", "tokens/s", "ratio to rope"):
        table.add_column(heading, justify="left" if heading == "mixer" else "right")
    for timing in throughput(size, asked.repeats):
        figures = f"{timing.seconds:.4f}", f"{timing.tokens_per_second:,.0f}", f"{timing.ratio:.2f}"
        table.add_row(timing.label, *figures)
    Console().print(table)
    return 0
