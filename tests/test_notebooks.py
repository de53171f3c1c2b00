"""The notebooks are made from their scripts, and the scripts run, with fewer sequences than a reader would train on."""

import json
import re
from pathlib import Path

import matplotlib
import pytest

SCRIPTS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.py"))


def cells(script: str) -> list[tuple[str, str]]:
    """(kind, source) of every cell of a script in percent format."""
    _, *parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)
    found = []
    for head, body in zip(parts[::2], parts[1::2]):
        if "[markdown]" in head:
            found.append(("markdown", "\n".join(line[2:] for line in body.strip().splitlines())))
        else:
            found.append(("code", body.strip()))
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_that_of_its_script(script):
    notebook = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == cells(script.read_text(encoding="utf-8")), f"run `jupytext --to ipynb notebooks/{script.name}`"
    assert not any(cell.get("outputs") for cell in notebook["cells"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_runs(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    short, changes = re.subn(r'"sequences": [\d_]+', '"sequences": 320', script.read_text(encoding="utf-8"))
    assert changes == 1
    exec(compile(short, script.name, "exec"), {"__name__": "__main__"})
