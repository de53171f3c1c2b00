"""Run the common tests of `transformers`, those that all its models must pass, on small models of this library.

  git clone --depth 1 --branch v5.15.1 https://github.com/huggingface/transformers
  pip install parameterized
  python scripts/common_tests.py --transformers transformers
  python scripts/common_tests.py --transformers transformers --models mapwm --skips

The tests (`ModelTesterMixin`, `GenerationTesterMixin`) are not in the package, so they are read from a checkout, at the
tag of the version that is installed or of one near to it; the library they run with is the installed one. `EXCEPTIONS`
says which tests of v5.15.1 a model may fail, and why. Status 1 if any other fails. An excepted test that passes is
named, so that its exception can go. What `transformers` itself warns of goes to stderr.
"""

import argparse
import importlib
import importlib.metadata
import os
import re
import sys
import traceback
import unittest
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

MODELS: dict[str, dict[str, Any]] = {"mapwm": {"rank": 2}, "mapem": {"rank": 2}, "rope": {}, "mamba": {}}
NO_KEYS = "it looks for keys and values in the cache, and a state-space model has none"
EXCEPTIONS: dict[tuple[str, str], str] = {  # (test, model or "all"): why it may fail
    ("test_model_base_model_prefix", "all"): "the model is one piece, and there is none without a head beneath it",
    ("test_past_key_values_format", "mamba"): NO_KEYS,
    ("test_greedy_generate_dict_outputs_use_cache", "mamba"): NO_KEYS,
    ("test_beam_search_generate_dict_outputs_use_cache", "mamba"): NO_KEYS,
    ("test_generate_continue_from_past_key_values", "mamba"): NO_KEYS,
    ("test_generate_continue_from_inputs_embeds", "mamba"): NO_KEYS,
}
# These read attention weights, which fused attention does not give: they are run as for a model without any.
READ_WEIGHTS = {
    "test_attention_outputs",
    "test_model_outputs_equivalence",
    "test_retain_grad_hidden_states_attentions",
    "test_greedy_generate_dict_outputs",
    "test_greedy_generate_dict_outputs_use_cache",
    "test_sample_generate_dict_output",
    "test_beam_sample_generate_dict_output",
    "test_beam_search_generate_dict_output",
    "test_beam_search_generate_dict_outputs_use_cache",
    "test_eager_matches_sdpa_inference_24_fp32_pad_left_output_attentions",
}


class Tester:
    """What the common tests ask of a model's tester: its sizes, a config, and what to call the model with."""

    batch_size, seq_length, is_training = 13, 7, True
    vocab_size, hidden_size, num_hidden_layers, num_attention_heads = 99, 32, 2, 2

    def __init__(self, common: ModuleType, model: str):
        self.common, self.model = common, model

    def get_config(self) -> Any:
        from mapformers.hf import MapFormerConfig

        names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
        sizes: dict[str, Any] = {name: getattr(self, name) for name in names}
        tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return MapFormerConfig(self.model, **sizes, **tokens, **MODELS[self.model])

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Any]]:
        """Rows are padded on the right, the first to one token, as in the tests of other models."""
        ids = self.common.ids_tensor([self.batch_size, self.seq_length], self.vocab_size)
        return self.get_config(), {"input_ids": ids, "attention_mask": ids.new_ones(ids.shape).tril()}


class Outcomes(unittest.TestResult):
    """By test: "passed", "skipped" or "failed", and the reason or the traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}

    def _keep(self, test: Any, outcome: str, why: str) -> None:
        self.found[getattr(test, "test_case", test)._testMethodName] = (outcome, why)

    def addSuccess(self, test: Any) -> None:
        self._keep(test, "passed", "")

    def addSkip(self, test: Any, reason: str) -> None:
        self._keep(test, "skipped", reason)

    def addFailure(self, test: Any, err: Any) -> None:
        self._keep(test, "failed", "".join(traceback.format_exception(*err)))

    addError = addFailure

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addFailure(test, err)


def common_tests(checkout: Path) -> ModuleType:
    """The module of the tests. What it imports from another version of the library fails only where it is used."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is looked for on a network
    os.environ["_INSIDE_SUB_PROCESS"] = "1"  # a test which would start pytest for itself alone runs here instead
    sys.path.insert(0, str(checkout.resolve()))
    while True:
        try:
            return importlib.import_module("tests.test_modeling_common")
        except ModuleNotFoundError as error:
            sys.exit(f"The tests of this checkout need {error.name}, which is not installed.")
        except ImportError as error:
            asked = re.match(r"cannot import name '(\w+)' from '(transformers[\w.]*)'", str(error))
            if asked is None:
                raise
            name, module = asked.groups()
            print(f"the tests use {module}.{name}, which the installed version does not have")
            setattr(sys.modules[module], name, None)


def version(checkout: Path) -> str:
    file = checkout / "src" / "transformers" / "__init__.py"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return "".join(re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)) or "an unknown version"


def run(common: ModuleType, model: str) -> Outcomes:
    from transformers import set_seed

    from mapformers.hf import MapFormerForCausalLM

    class CommonTests(common.ModelTesterMixin, common.GenerationTesterMixin, unittest.TestCase):  # type: ignore
        all_model_classes = (MapFormerForCausalLM,)

        def setUp(self) -> None:
            self.model_tester = Tester(common, model)
            self.has_attentions = self._testMethodName not in READ_WEIGHTS
            set_seed(0)
            common.global_rng.seed(0)  # of ids_tensor, which otherwise draws anew every time

        def _prepare_for_class(self, inputs: Any, model_class: Any, return_labels: bool = False) -> Any:
            """With labels, which the tests know by the names of their own classes to give."""
            prepared = super()._prepare_for_class(inputs, model_class, return_labels)
            return {**prepared, "labels": prepared["input_ids"].clone()} if return_labels else prepared

    # The tests look for layers that recompute themselves; ours are recomputed from outside, whatever their class.
    layers = MapFormerForCausalLM(Tester(common, model).get_config()).decoder.layers
    vars(common)["GradientCheckpointingLayer"] = type(layers[0])
    outcomes = Outcomes()
    unittest.defaultTestLoader.loadTestsFromTestCase(CommonTests).run(outcomes)
    return outcomes


def report(model: str, outcomes: Outcomes, skips: bool) -> bool:
    """Print what became of a model's tests; whether none failed that may not."""
    reasons = {test: why for (test, of), why in EXCEPTIONS.items() if of in ("all", model)}
    found = outcomes.found
    passed, skipped, failed = ([t for t in found if found[t][0] == end] for end in ("passed", "skipped", "failed"))
    excepted, wrong = [t for t in failed if t in reasons], [t for t in failed if t not in reasons]
    print(f"{model}: {len(passed)} passed, {len(skipped)} skipped, {len(excepted)} excepted, {len(wrong)} failed")
    for test in excepted:
        print(f"  excepted: {test}: {reasons[test]}")
    for test in sorted(reasons.keys() - set(excepted)):
        print(f"  excepted, but {found.get(test, ['not there'])[0]}: {test}")
    for test in wrong:
        print(f"  FAILED: {test}\n{found[test][1]}")
    for reason, count in Counter(found[test][1] for test in skipped).most_common() if skips else []:
        print(f"  {count:3} skipped: {reason}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transformers", type=Path, required=True, help="a checkout of its repository")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="all unless given")
    parser.add_argument("--skips", action="store_true", help="also print why tests were skipped")
    asked = parser.parse_args()
    if not (asked.transformers / "tests" / "test_modeling_common.py").is_file():
        sys.exit(f"{asked.transformers} is no checkout of transformers: it has no tests/test_modeling_common.py.")
    warnings.simplefilter("ignore")
    common = common_tests(asked.transformers)
    print(f"the tests of {version(asked.transformers)}, with transformers {importlib.metadata.version('transformers')}")
    fine = [report(model, run(common, model), asked.skips) for model in asked.models]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
