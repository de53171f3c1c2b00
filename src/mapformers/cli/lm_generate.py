"""`mapformers lm generate`: a trained language model goes on after prompts."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from mapformers.cli.output import print_json
from mapformers.cli.parse import parse
from mapformers.cli.threads import use_threads
from mapformers.errors import UserError, require
from mapformers.lm.detokenizer import StreamingDetokenizer
from mapformers.lm.documents import is_text
from mapformers.lm.evaluation import language_run
from mapformers.lm.generation import Sampling, generate, stream
from mapformers.lm.tokenizer import Tokenizer
from mapformers.model import Decoder

PROG = "mapformers lm generate"
DESCRIPTION = """Continue one prompt or several with a trained language model.

  mapformers lm generate runs/text-mapwm-seed0 --prompt "It was a dark"
  mapformers lm generate runs/text-mapwm-seed0 --prompt "It was" --tokens 200 --temperature 0.8 --top-p 0.95 --seed 1
  mapformers lm generate runs/text-mapwm-seed0 --prompts-file prompts.txt --json
  mapformers lm generate runs/text-mapwm-seed0 --temperature 0.8      # from nothing: a new document

Without --temperature, --top-k or --top-p, each token is the likeliest one. A text ends where a document would end.
"""
RULE = "---"  # between the texts of several prompts


@dataclass(frozen=True)
class Arguments:
    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder that `mapformers lm train` wrote."""
    prompt: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Text to continue (none: a new document). If given several times, all prompts are continued together."""
    prompts_file: Path | None = None
    """A file with a prompt on every line, after those of --prompt."""
    data: Path | None = None
    """Where the text of the run is, for runs that keep no tokenizer in their folder."""
    tokens: int = 100
    """New tokens after each prompt, at most."""
    sampling: Sampling = field(default_factory=Sampling)
    threads: int | None = None
    """Threads to compute on (one per core unless given)."""
    json: bool = False
    """Print one JSON document instead of the text."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    require(asked.tokens >= 1, f"--tokens must be at least 1, not {asked.tokens}.")
    prompts = read_prompts(asked)
    subject = language_run(asked.run_dir, asked.data)
    run, model, tokenizer = subject.run, subject.model, subject.tokenizer
    ids = [tokenizer.encode([prompt])[0].tolist() if prompt else [tokenizer.separator] for prompt in prompts]
    with use_threads(asked.threads):
        settings: dict[str, Any] = {"stop": tokenizer.separator, **asdict(asked.sampling)}
        if len(prompts) == 1 and not asked.json:
            show_as_it_comes(model, tokenizer, prompts[0], ids[0], asked.tokens, settings)
            return 0
        found = generate(model, ids, asked.tokens, **settings)
    results = [result(tokenizer, *each) for each in zip(prompts, ids, found)]
    if asked.json:
        said = {"run": str(asked.run_dir), "step": run.step, "tokens": asked.tokens, **asdict(asked.sampling)}
        print_json({**said, "results": results})
    else:
        print(f"\n{RULE}\n".join(each["prompt"] + each["text"] for each in results))
    return 0


def read_prompts(asked: Arguments) -> list[str]:
    """All prompts in their order; a single empty one, which begins a document, if none is given."""
    prompts = {f"--prompt number {n}": prompt for n, prompt in enumerate(asked.prompt, 1)}
    if asked.prompts_file is not None:
        try:
            text = asked.prompts_file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise UserError(f"Cannot read {asked.prompts_file}: {why.lower()}.") from None
        require(bool(text), f"{asked.prompts_file} is empty; it should have a prompt on every line.")
        lines = text.removesuffix("\n").split("\n")
        prompts |= {f"Line {n} of {asked.prompts_file}": line for n, line in enumerate(lines, 1)}
    for where, prompt in prompts.items():
        require(is_text(prompt), f"{where} is no text: it has bytes that are not UTF-8.")
        require(bool(prompt), f"{where} is empty; give it at least one letter, or no prompt for a new document.")
    return list(prompts.values()) or [""]


def show_as_it_comes(
    model: Decoder, tokenizer: Tokenizer, prompt: str, ids: list[int], tokens: int, settings: dict[str, Any]
) -> None:
    """Print the prompt, and then each piece of text as soon as it is there."""
    steps = stream(model, [ids], tokens, **settings)  # which refuses wrong settings before anything is printed
    text = StreamingDetokenizer(tokenizer, ids)
    print(prompt, end="", flush=True)
    for step in steps:
        if step[0] != tokenizer.separator:
            print(text.add(step[0]), end="", flush=sys.stdout.isatty())
    print(text.rest())


def result(tokenizer: Tokenizer, prompt: str, ids: list[int], found: list[int]) -> dict[str, Any]:
    """One prompt's text as plain data; ``ended``: whether the model ended it before all tokens were used up."""
    ended = found[-1] == tokenizer.separator
    text = StreamingDetokenizer(tokenizer, ids)
    shown = [text.add(token) for token in found[: len(found) - ended]]
    return {"prompt": prompt, "text": "".join(shown) + text.rest(), "ids": found, "ended": ended}
