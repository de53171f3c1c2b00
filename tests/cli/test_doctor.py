"""`mapformers doctor`: what is there, what is missing, and how to get it."""

import json
from importlib import metadata

import pytest
import torch

from mapformers.cli import doctor
from mapformers.cli.main import main


def answer(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["doctor", *options]) == 0
    return capsys.readouterr().out


def test_it_names_versions_device_and_extras(capsys):
    found = json.loads(answer(capsys, "--json"))
    assert found["installed"]["torch"] == torch.__version__
    assert set(found["installed"]) > {"mapformers", "python", "numpy", "safetensors", "accelerate"}
    assert found["device"]["used"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert set(found["extras"]) == set(doctor.EXTRAS) & set(metadata.metadata("mapformers").get_all("Provides-Extra"))
    assert all(name in answer(capsys) for name in ("torch", "extras", *found["extras"]))


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys, monkeypatch):
    there = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: None if name == "submitit" else there(name))
    line = next(line for line in answer(capsys).splitlines() if "submitit" in line)
    assert line.split() == ["missing", "submitit:", "pip", "install", "'mapformers[slurm]'"]
    assert json.loads(answer(capsys, "--json"))["extras"]["slurm"]["missing"] == ["submitit"]


def test_every_extra_for_users_is_explained():
    names = set(metadata.metadata("mapformers").get_all("Provides-Extra"))
    assert names - {"dev", "docs", "release"} <= set(doctor.EXTRAS)
