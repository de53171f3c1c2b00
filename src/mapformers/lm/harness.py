"""Adapter for `lm-eval` (EleutherAI's harness): BLiMP as lm-eval tasks, and our decoder as an lm-eval model.

lm-eval asks for the log-probability of " Sentence" after nothing, which becomes the separator that ends a document. So
a sentence is scored as the beginning of one, with the space by which lm-eval joins an answer to its question.
Its own `hf` model asks the same of a folder that `mapformers.hf.save_run` wrote, and gives the same answers.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

from mapformers.errors import UserError
from mapformers.lm.blimp import Paradigm, require_lm_eval

require_lm_eval()

import datasets  # noqa: E402
import tqdm  # noqa: E402
from lm_eval import evaluator, simple_evaluate  # noqa: E402
from lm_eval.api.model import TemplateLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from mapformers.lm.sentences import Sentence, log_probabilities  # noqa: E402
from mapformers.lm.tokenizer import Tokenizer  # noqa: E402
from mapformers.model import Decoder  # noqa: E402

Request = tuple[tuple[str, str], list[int], list[int]]  # texts, ids of the context, ids of what follows it
OTHERWISE = (
    "Only log-probabilities of sentences are asked here; for other tasks save the run with mapformers.hf.save_run."
)


class DecoderLM(TemplateLM):  # type: ignore[misc]
    """A model of `build_model` with its tokenizer, as lm-eval asks one."""

    def __init__(self, model: Decoder, tokenizer: Tokenizer):
        super().__init__()
        self.model, self.text_tokenizer = model, tokenizer

    @property
    def eot_token_id(self) -> int:
        return self.text_tokenizer.separator

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return [int(token) for token in self.text_tokenizer.encode([string])[0]]

    def _loglikelihood_tokens(self, requests: Sequence[Request], **_: Any) -> list[tuple[float, bool]]:
        """Of each request, log p of what follows the context, and whether every token of it was the likeliest one."""
        found = log_probabilities(self.model, [Sentence(context, rest) for _, context, rest in requests])
        return [(answer.log_probability, answer.is_likeliest) for answer in found]

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        raise UserError(OTHERWISE)

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        raise UserError(OTHERWISE)


def blimp_tasks(paradigms: Sequence[Paradigm]) -> list[dict[str, Any]]:
    """Tasks for `lm_eval.simple_evaluate(tasks=…)`, one for each paradigm; nothing is downloaded."""
    return [
        {
            "task": paradigm.name,
            "custom_dataset": _Pairs(paradigm),
            "validation_split": "train",
            "output_type": "multiple_choice",
            "doc_to_text": "",
            "doc_to_target": 0,
            "doc_to_choice": _both,
            "num_fewshot": 0,
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        }
        for paradigm in paradigms
    ]


class _Pairs:
    """What lm-eval calls to get the pairs of a paradigm."""

    def __init__(self, paradigm: Paradigm):
        self.paradigm = paradigm

    def __call__(self, **_: Any) -> dict[str, Any]:
        rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in self.paradigm.pairs]
        return {"train": datasets.Dataset.from_list(rows)}


def _both(pair: dict[str, str]) -> list[str]:
    return [pair["sentence_good"], pair["sentence_bad"]]


def accuracies(
    model: Any, paradigms: Sequence[Paradigm], limit: int | None = None, **settings: Any
) -> dict[str, float]:
    """Paradigm -> accuracy. ``model`` and ``settings`` are those of `lm_eval.simple_evaluate`: also ``"hf"``.

    Examples:
        >>> accuracies("hf", paradigms, model_args={"pretrained": "folder"})  # doctest: +SKIP
    """
    with quiet():
        found = simple_evaluate(
            model=model,
            tasks=blimp_tasks(paradigms),
            task_manager=TaskManager(include_defaults=False),
            limit=limit,
            bootstrap_iters=0,
            log_samples=False,
            **settings,
        )
    return {paradigm.name: float(found["results"][paradigm.name]["acc,none"]) for paradigm in paradigms}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """lm-eval without its log and its bars, for commands show progress of their own; it does not ask git either."""
    logger, bars = logging.getLogger("lm_eval"), tqdm.tqdm.__init__
    level = logger.level

    def hidden(bar: Any, *args: Any, **settings: Any) -> None:
        bars(bar, *args, **{**settings, "disable": True})

    logger.setLevel(logging.ERROR)
    tqdm.tqdm.__init__ = hidden  # nothing else switches bars off once tqdm is imported
    try:
        with warnings.catch_warnings(), patch.object(evaluator, "get_git_commit_hash", lambda: None, create=True):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        tqdm.tqdm.__init__ = bars
