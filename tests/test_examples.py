"""The examples run as they stand, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = ["--steps", "2", "--sequences", "4", "--walk", "16"]


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=variables, timeout=300, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(output: str) -> dict[str, list[str]]:
    """The cells of the printed table by the name of their row."""
    lines = [re.split(r"\s*│\s*", line.strip("│ \n")) for line in output.splitlines() if line.startswith("│")]
    return {cells[0]: cells[1:] for cells in lines}


PLAYERS = {f"player: {name}" for name in ("perfect", "commonest", "last-value", "best-lag", "random")}
OWN = "own function: a turn back"


def test_own_models_are_measured_with_the_players():
    pytest.importorskip("transformers", reason="the example measures a Llama")
    rows = rows_of(run(str(EXAMPLES / "evaluate_your_model.py"), *SMALL))
    assert set(rows) == {"Llama after 2 steps", OWN, *PLAYERS}
    assert rows["player: perfect"] == ["1.000"] * 3
    assert all(0 <= float(cell) <= 1 for cells in rows.values() for cell in cells)


def test_the_example_does_without_transformers(tmp_path):
    """A module of that name that cannot be imported stands in for one that is not installed."""
    (tmp_path / "transformers.py").write_text('raise ImportError("not here")\n')
    output = run(str(EXAMPLES / "evaluate_your_model.py"), *SMALL, PYTHONPATH=str(tmp_path))
    assert "Llama is left out: it needs transformers" in output
    assert set(rows_of(output)) == {OWN, *PLAYERS}


def test_train_and_evaluate():
    output = run(str(EXAMPLES / "train_and_evaluate.py"))
    assert "20 steps" in output and output.count("accuracy") == 5


def test_a_model_of_ones_own_is_trained_and_streams(tmp_path):
    output = run(str(EXAMPLES / "own_model.py"), "--steps", "4", cwd=tmp_path)
    assert "accuracy on iid" in output and "streamed = at once: True" in output
    assert len((EXAMPLES / "own_model.py").read_text().splitlines()) <= 80


def test_a_map_is_read():
    output = run(str(EXAMPLES / "read_a_map.py"))
    assert "how far each token moves" in output and "%" in output


def test_a_llama_is_given_maps(tmp_path):
    pytest.importorskip("transformers", reason="the example is about a model of transformers")
    (tmp_path / "text.txt").write_text("A cat sees a dog. " * 100)
    output = run(str(EXAMPLES / "upcycle_llama.py"), "--text", "text.txt", "--tiny", cwd=tmp_path)
    assert "same logits: True" in output and "with and without cache: True" in output
    assert output.count("perplexity") == output.count("accuracy") == 2
