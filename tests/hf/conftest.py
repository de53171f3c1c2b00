"""Nothing is looked for on a network; without `transformers` there is nothing to test here."""

import os
from importlib.util import find_spec

os.environ["HF_HUB_OFFLINE"] = "1"

collect_ignore_glob = [] if find_spec("transformers") else ["test_*.py"]


def pytest_report_header() -> str:
    return "" if find_spec("transformers") else "tests/hf is left out: transformers is not installed"
