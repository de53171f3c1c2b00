"""The examples, which docs/examples.md shows, run as they stand; one of them in a process of its own."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mapformers as mf

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = ["--steps", "2", "--sequences", "4", "--walk", "16"]


def left_behind() -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        mf.list_models(),
        mf.list_tasks(),
    )


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run an example in this process, in an empty folder; what it printed. It leaves the process as it was."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)

    def run(name: str, *words: str) -> str:
        before = left_behind()
        monkeypatch.setattr("sys.argv", [str(EXAMPLES / name), *words])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert left_behind() == before
        return capsys.readouterr().out

    return run


def rows_of(output: str) -> dict[str, list[str]]:
    """The cells of the printed table by the name of their row."""
    lines = [re.split(r"\s*│\s*", line.strip("│ \n")) for line in output.splitlines() if line.startswith("│")]
    return {cells[0]: cells[1:] for cells in lines}


PLAYERS = {f"player: {name}" for name in ("perfect", "commonest", "last-value", "best-lag", "random")}
OWN = "own function: a turn back"


def test_own_models_are_measured_with_the_players(run):
    pytest.importorskip("transformers", reason="the example measures a Llama")
    rows = rows_of(run("evaluate_your_model.py", *SMALL))
    assert set(rows) == {"Llama after 2 steps", OWN, *PLAYERS}
    assert rows["player: perfect"] == ["1.000"] * 3
    assert all(0 <= float(cell) <= 1 for cells in rows.values() for cell in cells)


def test_the_example_does_without_transformers(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)  # it cannot be imported, as if it were not installed
    output = run("evaluate_your_model.py", *SMALL)
    assert "Llama is left out: it needs transformers" in output
    assert set(rows_of(output)) == {OWN, *PLAYERS}


def test_train_and_evaluate_in_a_process_of_its_own():
    words = [sys.executable, str(EXAMPLES / "train_and_evaluate.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    output = done.stdout
    assert "20 steps" in output and output.count("accuracy") == 5


def test_a_model_of_ones_own_is_trained_and_streams(run):
    output = run("own_model.py", "--steps", "4")
    assert "accuracy on iid" in output and "streamed = at once: True" in output
    assert len((EXAMPLES / "own_model.py").read_text().splitlines()) <= 80


def test_a_map_is_read(run):
    output = run("read_a_map.py")
    assert "how far each token moves" in output and "%" in output


def test_a_llama_is_given_maps(run, tmp_path):
    pytest.importorskip("transformers", reason="the example is about a model of transformers")
    (tmp_path / "text.txt").write_text("A cat sees a dog. " * 100)
    output = run("upcycle_llama.py", "--text", "text.txt", "--tiny")
    assert "same logits: True" in output and "with and without cache: True" in output
    assert output.count("perplexity") == output.count("accuracy") == 2
