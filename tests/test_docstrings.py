"""Every example in a docstring gives what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

import mapformers

PACKAGE = Path(mapformers.__file__).parent


def has_examples(path):
    """Whether it has any that are run: some need a file or a model that the reader has."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return any(">>> " in line and "+SKIP" not in line for line in lines)


def module_name(path):
    words = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


@pytest.mark.parametrize("name", [module_name(path) for path in sorted(PACKAGE.rglob("*.py")) if has_examples(path)])
def test_the_examples_of_a_module(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    found = doctest.testmod(module)
    assert found.failed == 0 and found.attempted > 0
