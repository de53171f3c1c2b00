"""`mapformers explore`: what it prints, what it refuses, and how it ends."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from mapformers.cli.main import main
from mapformers.explorer.loaded_runs import LoadedRuns, distinct, label_of, open_runs
from mapformers.runs.run import Run
from untrained import untrained_runs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Untrained models of two tasks, saved as runs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, (task, model) in {
        "map": ("navigation", "mapwm"),
        "rope": ("navigation", "rope"),
        "dyck": ("dyck", "mapwm"),
    }.items():
        (run,) = untrained_runs(task, model).runs
        run.save(folder / name)
    return folder


def refused(capsys: pytest.CaptureFixture[str], *line: object) -> str:
    assert main(["explore", *map(str, line)]) == 2
    return capsys.readouterr().err


def test_wrong_input_is_one_sentence(folders, tmp_path, capsys):
    assert "There is no folder" in refused(capsys, tmp_path / "nowhere")
    assert "is not a run folder" in refused(capsys, tmp_path)
    assert "different tokens" in refused(capsys, folders / "map", folders / "dyck")
    assert "ends in .html" in refused(capsys, folders / "map", "--export", tmp_path / "page.txt")
    assert "needs the folder" in refused(capsys)


def test_the_page_is_written_whole(folders, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(LoadedRuns, "players", lambda self: {})
    page = tmp_path / "new" / "page.html"
    assert main(["explore", str(folders / "map"), str(folders / "rope"), "--export", str(page)]) == 0
    assert "open it with a double click" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>") and not list(page.parent.glob("*.part"))


def test_it_serves_until_it_is_interrupted(folders):
    line = [sys.executable, "-m", "mapformers", "explore", str(folders / "map"), "--no-open"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as server:
        said = server.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+/", said).group()
        assert urllib.request.urlopen(url, timeout=30).status == 200
        server.send_signal(signal.SIGINT)
        _, trouble = server.communicate(timeout=60)
    assert server.returncode == 0 and "Traceback" not in trouble, trouble


def test_models_have_short_names():
    assert [label_of(untrained_runs("navigation", name).models[0]) for name in ("mapwm", "rope", "mapem-nc")] == [
        "MapWM-r2",
        "RoPE",
        "MapEM-NC-r2",
    ]
    assert distinct(["RoPE", "RoPE"]) == ["RoPE A", "RoPE B"]


def test_a_model_of_ones_own_cannot_be_shown(folders, monkeypatch):
    import torch

    loaded = open_runs([folders / "map"]).runs[0]
    own = Run(loaded.folder, loaded.config, torch.nn.Linear(1, 1), {}, 0)
    monkeypatch.setattr("mapformers.explorer.loaded_runs.load", lambda folder: own)
    with pytest.raises(ValueError, match="a model of your own"):
        open_runs([folders / "map"])
