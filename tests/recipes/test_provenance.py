"""Where figures come from: the files that decide a run, a hash of what they do, the commit, the command."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mapformers.plugins import import_plugins
from mapformers.runs import checkout as checkout_module
from mapformers.runs import provenance as origin
from mapformers.runs import sources
from mapformers.runs.config import RunConfig
from mapformers.runs.source_text import fingerprint, meaningful_lines
from mapformers.runs.sources import PACKAGE, library_hash, sources_hash, sources_of

ROOT = Path(__file__).parents[2]


def names(task, model, **settings):
    config = RunConfig.compose(task, model, "smoke", **settings)
    return {path.relative_to(PACKAGE).as_posix() for path in sources_of(config)}


def test_the_files_that_decide_a_run_are_those_its_model_and_task_import():
    found = names("navigation", "mapwm")
    assert {"layers/mapwm.py", "tasks/navigation.py", "model.py", "seeding.py", "training/loop.py"} <= found
    assert {"training/zero_mean.py", "training/optimizer.py", "evaluation/evaluate.py", "modules/movement.py"} <= found
    assert any(name.startswith("lie/") for name in found) and any(name.startswith("ops/") for name in found)
    others = {"layers/mamba.py", "tasks/dyck.py", "ops/selective_scan.py", "evaluation/grid.py", "runs/config.py"}
    assert not others & found
    assert {name.split("/")[0] for name in found} <= {*sources.FOLDERS, *sources.FILES}


def test_another_layer_task_or_world_is_decided_by_other_files():
    assert {"layers/mamba.py", "ops/selective_scan.py"} <= names("navigation", "mamba")
    assert {"tasks/dyck.py", "tasks/dyck_sampler.py"} <= names("dyck", "rope")
    assert "tasks/worlds/dihedral.json" in names("graph", "rope", world="dihedral")
    hashes = {sources_hash(RunConfig.compose("navigation", model, "smoke")) for model in ("mapwm", "rope", "mamba")}
    assert len(hashes) == 3


def test_a_recorded_config_names_the_same_files():
    config = RunConfig.compose("navigation", "mapem", "smoke")
    assert sources_of(json.loads(json.dumps(config.to_dict()))) == sources_of(config)


BEFORE = '''"""A file."""

import math


class A:
    """What it is."""

    x: int = 1
    """A field."""

    def f(self, y):  # doubled
        # nothing more
        return f"{y * 2:>{self.x}} times"
'''
PROSE = '''"""Another text altogether.

It has two paragraphs.
"""
import math

class A:
    x: int = 1

    def f(self, y):
        """Now it says what it does."""
        return f"{y * 2:>{self.x}} times"
'''


def test_prose_does_not_change_the_hash_and_code_does(tmp_path):
    hashes = []
    for text in (BEFORE, PROSE, BEFORE.replace("y * 2", "y * 3"), BEFORE.replace(" times", " Times")):
        (tmp_path / "a.py").write_text(text)
        hashes.append(fingerprint(tmp_path / "a.py"))
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3


def test_indentation_counts():
    one, two = "if a:\n    b()\n    c()\n", "if a:\n    b()\nc()\n"
    assert list(meaningful_lines(one)) != list(meaningful_lines(two))


def answers(interpreter):
    return subprocess.run([interpreter, "--version"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_hash_is_the_same_in_every_version_of_python(version, tmp_path):
    """Only where there is another interpreter; f-strings are read differently from 3.12 on."""
    found = [*Path(sys.base_prefix).parent.glob(f"{version}*/bin/python"), shutil.which(f"python{version}")]
    interpreter = next((str(path) for path in found if path and answers(path)), None)
    if interpreter is None:
        pytest.skip(f"there is no Python {version} here")
    (tmp_path / "a.py").write_text(BEFORE)
    files = [*sorted(PACKAGE.rglob("*.py")), tmp_path / "a.py"]
    script = (
        "import sys; from pathlib import Path; from mapformers.runs.source_text import fingerprint; "
        "print(*(fingerprint(Path(name)) for name in sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    line = [interpreter, "-c", script, *map(str, files)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [fingerprint(path) for path in files]


def test_the_hash_is_kept_for_the_life_of_the_process():
    config = RunConfig.compose("navigation", "tape", "smoke")
    sources_hash(config)
    before = sources._hash_of.cache_info().hits
    sources_hash(config)
    assert sources._hash_of.cache_info().hits == before + 1


def test_a_layer_of_a_plug_in_brings_its_own_file(tmp_path):
    plugin = (PACKAGE / "layers/nope.py").read_text().replace("`nope`", "`mine`").replace('"nope"', '"mine"')
    (tmp_path / "my_layer.py").write_text(plugin)
    import_plugins([str(tmp_path / "my_layer.py")])
    found = sources_of(RunConfig.compose("navigation", "mine", "smoke"))
    assert tmp_path / "my_layer.py" in found and PACKAGE / "layers/nope.py" not in found
    assert PACKAGE / "modules/attention.py" in found


def test_a_benchmark_depends_on_every_layer():
    record = {"benchmark": "throughput", "sources": library_hash()}
    assert origin.freshness(record) == "current"
    assert origin.is_stale({**record, "sources": "0123456789abcdef"})
    assert origin.freshness({**record, "sources": None}) == "unrecorded"


def test_a_record_of_a_layer_that_is_no_more_is_stale():
    config = RunConfig.compose("navigation", "rope", "smoke").to_dict()
    config["model"]["layers"][0]["name"] = "forgotten"
    assert origin.is_stale({"sources": "0123456789abcdef", "config": config})


COMMANDS = {
    "reproduce table2 --rows 'RoPE (1L)' MapWM-r2": "reproduce table2 --rows 'RoPE (1L)' MapWM-r2",
    "reproduce table2 --runs /tmp/x --results=/tmp/y --seeds 3": "reproduce table2 --seeds 3",
    "bench mixers --write /tmp/p --repeats 5": "bench mixers --repeats 5",
    "report table2 --write --scale cpu": "report table2 --scale cpu",
    "train --task graph --world /home/me/town.json --out mine": "train --task graph --world town.json",
    "train --task graph --world=../town.json": "train --task graph --world=town.json",
    "reproduce mine --import /home/me/mine.py": "reproduce mine --import mine.py",
    "train --task graph --world ~/town.json": "train --task graph --world town.json",
}


@pytest.mark.parametrize("typed", COMMANDS)
def test_a_command_is_kept_without_folders_of_this_machine(typed):
    assert origin.command(shlex.split(typed)) == f"mapformers {COMMANDS[typed]}"


def test_a_command_can_be_typed_again(monkeypatch):
    monkeypatch.setattr("sys.argv", ["mapformers", "reproduce", "table2", "--rows", "RoPE (1L)"])
    kept = origin.provenance({})
    assert shlex.split(kept["command"]) == ["mapformers", "reproduce", "table2", "--rows", "RoPE (1L)"]
    assert kept["sources"] is None


def test_a_program_of_ones_own_is_not_taken_for_our_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["somewhere/my.py", "--lr", "5"])
    assert origin.provenance({})["command"] == "python my.py"


def git(folder, *words):
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    package = tmp_path / "src/mapformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(checkout_module, "PACKAGE", package)
    origin.commit.cache_clear()
    yield tmp_path
    origin.commit.cache_clear()


def test_the_commit_of_the_checkout_and_whether_its_sources_differ(checkout):
    git(checkout, "init", "-q")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "first")
    head = git(checkout, "rev-parse", "HEAD")
    assert origin.commit() == head
    (checkout / "notes.txt").write_text("not a source")
    origin.commit.cache_clear()
    assert origin.commit() == head
    (checkout / "src/mapformers/new.py").write_text("x = 1")
    origin.commit.cache_clear()
    assert origin.commit() == f"{head}+changes"


def test_outside_a_checkout_there_is_no_commit(checkout):
    assert origin.commit() is None


def test_a_copy_inside_another_projects_checkout_has_no_commit(checkout):
    git(checkout, "init", "-q")
    git(checkout, "commit", "-q", "-m", "theirs", "--allow-empty")
    assert origin.commit() is None


def test_without_git_there_is_no_commit(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert origin.commit() is None


@pytest.mark.parametrize("file", sorted((ROOT / "results").glob("*.json")), ids=lambda path: path.name)
def test_records_of_the_project_say_where_they_come_from_and_name_no_folder(file):
    text = file.read_text()
    assert not re.search(r'["\s=](/|~/|\.\./|[A-Z]:\\)', text)
    record = json.loads(text)
    for run in [record] if "benchmark" in record else record["runs"]:
        assert {"commit", "sources", "command", "versions", "hardware"} <= set(run)
        assert origin.command(shlex.split(run["command"])[1:]) == run["command"]
