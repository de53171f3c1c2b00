"""`mapformers export`: a trained run as an ONNX file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from mapformers.cli.parse import parse
from mapformers.errors import in_bytes, require

PROG = "mapformers export"
DESCRIPTION = """A trained run as an ONNX file, for onnxruntime and whatever else reads ONNX.

  mapformers export runs/navigation-mapwm-seed0 --onnx mapwm.onnx                    one streaming step
  mapformers export runs/navigation-mapwm-seed0 --onnx mapwm.onnx --form sequence    whole sequences
"""


@dataclass(frozen=True)
class Arguments:
    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder that `mapformers train` wrote."""
    onnx: Path
    """The file to write."""
    form: Literal["step", "sequence"] = "step"
    """step: one token and the state before it; every model has it. sequence: tokens to logits, of any length."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    from mapformers.explorer.onnx import export_onnx, require_folder, require_packages
    from mapformers.model import Decoder
    from mapformers.runs.run import load

    require_folder(asked.onnx)
    require_packages()
    run = load(asked.run_dir)
    model = run.model
    require(isinstance(model, Decoder), f"The model of {asked.run_dir} is your own; export it with torch.onnx.export.")
    assert isinstance(model, Decoder)
    made = export_onnx(model, asked.onnx, asked.form)
    console = Console()
    console.print(f"{made.path}: {in_bytes(made.size)}, the {asked.form} form", highlight=False, soft_wrap=True)
    console.print(f"inputs   {', '.join(made.inputs)}", highlight=False, soft_wrap=True)
    console.print(f"outputs  {', '.join(made.outputs)}", highlight=False, soft_wrap=True)
    checked = "not checked, because onnxruntime is not installed"
    if made.difference is not None:
        checked = f"onnxruntime answers as PyTorch does, but for {made.difference:.1e} of the largest logit"
    console.print(checked, highlight=False, soft_wrap=True)
    return 0
