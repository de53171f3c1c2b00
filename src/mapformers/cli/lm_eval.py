"""`mapformers lm eval`: perplexity, long contexts and BLiMP of language models, alone or against others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from mapformers.cli.differences import differences as other_settings
from mapformers.cli.lm_eval_tables import tables
from mapformers.cli.output import print_json
from mapformers.cli.parse import parse
from mapformers.cli.threads import use_threads
from mapformers.errors import require
from mapformers.lm.blimp import read_blimp, require_lm_eval
from mapformers.lm.evaluation import (
    EvaluationSettings,
    LanguageRun,
    Measured,
    differences,
    language_run,
    long_documents,
    measure,
)
from mapformers.lm.long_context import CONTEXTS, long_enough
from mapformers.runs.config import Backend, RunConfig
from mapformers.stages import doing

PROG = "mapformers lm eval"
DESCRIPTION = """Measure language models: validation perplexity, perplexity against context length, BLiMP.

  mapformers lm eval runs/text-mapwm-seed0
  mapformers lm eval runs/text-mapwm-seed0 --contexts 128 256 512 1024 2048 4096 --documents books/long
  mapformers lm eval runs/text-mapwm-seed0 --blimp BLiMP.zip
  mapformers lm eval runs/text-mapwm-seed0 runs/text-mapwm-seed1 --against runs/text-rope-seed0 runs/text-rope-seed1

Several runs are several seeds of one model. With --against, the difference between two models is tested.
"""


@dataclass(frozen=True)
class Arguments:
    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]")] = ()
    """Folders that `mapformers lm train` wrote."""
    against: tuple[Path, ...] = ()
    """Runs of another model on the same text, to compare with."""
    data: Path | None = None
    """Where the text of the runs is (where it was when they were started unless given)."""
    windows: int = 512
    """Windows of the validation text, at equal distances; 0 measures none, and needs no text."""
    contexts: tuple[int, ...] = ()
    """Tokens before the targets (128 to 4096 where --documents are given)."""
    documents: Path | None = None
    """Long texts: a folder, a file, or a prepared folder (the run's own long or validation text unless given)."""
    targets: int = 32
    """Tokens that are predicted at a place of a document."""
    blocks: int = 2
    """Places of every document."""
    blimp: Path | None = None
    """BLiMP.zip, a folder with it, or a folder of its .jsonl files. Scored by lm-eval."""
    limit: int | None = None
    """Pairs of each paradigm of BLiMP (all unless given)."""
    threads: int | None = None
    """Threads to compute on (one per core unless given)."""
    json: bool = False
    """Print one JSON document instead of tables."""


def main(args: Sequence[str]) -> int:
    asked = parse(Arguments, args, PROG, DESCRIPTION)
    require(bool(asked.runs), f"{PROG} needs the folder that `mapformers lm train` wrote; see `{PROG} --help`.")
    for name, least in (("windows", 0), ("targets", 1), ("blocks", 1)):
        require(getattr(asked, name) >= least, f"--{name} must be at least {least}, not {getattr(asked, name)}.")
    longer = asked.windows == 0 and (asked.documents is not None or bool(asked.contexts))
    paired = not asked.against or asked.windows >= 2 or longer
    told = "--against compares windows in pairs: --windows must be at least 2 (or 0, with --documents)"
    require(paired, f"{told}, not {asked.windows}.")
    require(asked.limit is None or asked.limit >= 1, f"--limit must be at least 1, not {asked.limit}.")
    subjects = [language_run(folder, asked.data) for folder in (*asked.runs, *asked.against)]
    require_comparable(subjects)
    require_once(subjects)
    for side in (subjects[: len(asked.runs)], subjects[len(asked.runs) :]) if asked.against else ():
        require_seeds(side)
    for fault in [fault for subject in subjects for fault in subject.run.faults]:
        Console(stderr=True).print(fault, highlight=False, soft_wrap=True)
    question = question_of(asked, subjects[0])
    with use_threads(asked.threads):
        found = []
        for name, subject in zip(names_of([subject.run.folder for subject in subjects]), subjects):
            with doing(f"measuring {name}"):
                found.append(measure(subject, question, name))
    ours, others = found[: len(asked.runs)], found[len(asked.runs) :]
    if asked.json:
        print_json(plain(asked, ours, others))
    else:
        for table in tables(ours, others, question):
            Console().print(table)
    return 0


def names_of(folders: Sequence[Path]) -> list[str]:
    """The folders by their own names, or in full where two are called the same."""
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def require_comparable(subjects: Sequence[LanguageRun]) -> None:
    """Perplexities are per token: of one text in tokens of one kind they can be compared, of others not."""
    first = subjects[0]
    for other in subjects[1:]:
        where = f"The run in {other.run.folder}"
        same_tokens = other.tokenizer_checksum == first.tokenizer_checksum
        require(same_tokens, f"{where} has another tokenizer than {first.run.folder}; perplexities cannot be compared.")
        same_text = other.text_checksum == first.text_checksum
        require(same_text, f"{where} is on other text than {first.run.folder}; compare runs on the same data.")
        context, own = first.task.settings.context, other.task.settings.context
        require(context == own, f"{where} has a context of {own}, {first.run.folder} one of {context}; windows differ.")


def require_once(subjects: Sequence[LanguageRun]) -> None:
    """No run counts twice, nor on both sides."""
    seen: set[Path] = set()
    for folder in (subject.run.folder for subject in subjects):
        require(folder.resolve() not in seen, f"{folder} is given twice; a run counts once.")
        seen.add(folder.resolve())


def require_seeds(side: Sequence[LanguageRun]) -> None:
    """Where two models are compared, the runs of a side differ in their seeds alone."""
    first = side[0].run
    for number, subject in enumerate(side):
        folder, config = subject.run.folder, subject.run.config
        both = first.config.model_name, config.model_name
        differ = other_settings(decisive(first.config), decisive(config)) if both[0] == both[1] else " and ".join(both)
        require(not differ, f"{first.folder} and {folder} are not seeds of one model: {differ}.")
        for other in side[:number]:
            again = f"{other.run.folder} and {folder} have the same seed, {config.seed}; a seed counts once."
            require(other.run.config.seed != config.seed, again)


def decisive(config: RunConfig) -> RunConfig:
    """A run's settings but for its seed, the machinery that computed it, and where its text was."""
    text = replace(config.task_settings, data="")
    return replace(config, seed=0, backend=Backend(), task_settings=text)


def question_of(asked: Arguments, subject: LanguageRun) -> EvaluationSettings:
    """Everything that is asked for is read, or refused, before anything is measured."""
    paradigms = read_blimp(asked.blimp) if asked.blimp is not None else []
    if paradigms:
        require_lm_eval()
    require(asked.limit is None or asked.blimp is not None, "--limit counts pairs of BLiMP; give --blimp too.")
    contexts = asked.contexts or (CONTEXTS if asked.documents is not None else ())
    documents = long_documents(subject, asked.documents) if contexts else []
    if contexts:
        require(min(contexts) >= asked.targets, f"--contexts must be at least {asked.targets}, as many as --targets.")
        documents = long_enough(documents, max(contexts), asked.targets, asked.blocks)
    return EvaluationSettings(
        asked.windows,
        tuple(sorted(set(contexts))),
        tuple(documents),
        asked.targets,
        asked.blocks,
        tuple(paradigms),
        asked.limit,
    )


def plain(asked: Arguments, ours: Sequence[Measured], others: Sequence[Measured]) -> dict[str, Any]:
    """What was measured, for programs."""
    said = {"windows": asked.windows, "targets": asked.targets, "blocks": asked.blocks, "limit": asked.limit}
    tests = {name: found.to_dict() for name, found in differences(ours, others).items()} if others else {}
    return {
        **said,
        "runs": [plain_run(measured) for measured in ours],
        "against": [plain_run(measured) for measured in others],
        "differences": tests,
    }


def plain_run(measured: Measured) -> dict[str, Any]:
    windows, contexts, blimp = measured.windows, measured.contexts, measured.blimp
    return {
        "run": measured.name,
        "step": measured.step,
        "split": measured.split,
        "perplexity": measured.perplexity,
        "mean_of_last_five": measured.last_five,
        "windows": None if windows is None else list(windows.nats),
        "training": [{"tokens": point.tokens, "perplexity": point.perplexity} for point in measured.training],
        "contexts": None
        if contexts is None
        else {
            "perplexity": {context: contexts.perplexity(context) for context in contexts.contexts},
            "documents": {context: list(contexts.of(context)) for context in contexts.contexts},
        },
        "blimp": None if blimp is None else blimp.to_dict(),
    }
