"""A run goes on with as many threads as before, and says so where it does not."""

import json

import pytest
import torch

from mapformers.cli.main import main
from mapformers.runs import checkpoint
from runs import assert_same_run, command, copy, run

SENTENCE = "was computed on 1 thread and goes on with 2"


@pytest.fixture(autouse=True)
def two_threads_unless_said_otherwise(monkeypatch):
    """As on a machine of two cores."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run on one thread, and the same one as it was at its checkpoint of step 10."""
    place = tmp_path_factory.mktemp("threads")
    whole = run(place / "whole", threads=1)
    part = copy(whole, place / "part")
    for path in (part / "checkpoints").glob("step-*"):
        if path.name != "step-00000010":
            checkpoint._remove(path)
    (part / "result.json").unlink()
    return whole, part


def resumed(folder, *words):
    assert main(["train", "--resume", "--out", str(folder), *words]) == 0
    return checkpoint.threads(folder / "checkpoints")


def test_a_run_goes_on_with_as_many_threads_as_before(stopped, tmp_path, capsys):
    whole, part = stopped
    folder = copy(part, tmp_path / "run")
    assert resumed(folder) == 1
    assert torch.get_num_threads() == 2  # of whoever called
    assert "goes on with" not in capsys.readouterr().err
    assert_same_run(folder, whole)


def test_another_number_is_taken_if_asked_for_and_named(stopped, tmp_path, capsys):
    folder = copy(stopped[1], tmp_path / "run")
    assert resumed(folder, "--threads", "2") == 2
    said = capsys.readouterr().err
    assert f"Up to step 10 this run {SENTENCE}" in said and "--threads 1 avoids that" in said


def test_the_environment_is_asking_too(stopped, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert resumed(copy(stopped[1], tmp_path / "run")) == 2
    assert SENTENCE in capsys.readouterr().err


def test_more_threads_than_there_are_cores_are_not_taken_over(tmp_path, monkeypatch):
    folder = run(tmp_path / "run", threads=2)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    torch.set_num_threads(1)
    (folder / "result.json").unlink()
    assert main(command(out=folder, resume=True)) == 0
    assert json.loads((folder / "result.json").read_text())["hardware"]["threads"] == 1


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"threads": 0}', '{"threads": "2"}', '{"threads": true}', "{", "\udcff"]
)
def test_a_manifest_without_a_number_of_threads_decides_nothing(tmp_path, content):
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "step-00000001" / "manifest.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert checkpoint.threads(tmp_path) is None
    assert checkpoint.threads(tmp_path / "nothing") is None
