"""One thread, repeatable examples, seeded tests; ``helpers`` can be imported under any pytest import mode."""

import sys
from pathlib import Path

import hypothesis
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
