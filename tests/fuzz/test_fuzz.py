"""Damaged files either work or are refused in a sentence: `UserError`, and never anything else.

A few examples of each kind here. `pytest tests/fuzz --fuzz 600` looks for ten minutes at each, at other ones every
time, and says how many it has seen.
"""

import shutil
import time
from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import strategies as st
from mutations import mutated_lines, mutations

import mapformers as mf
from mapformers.errors import UserError
from mapformers.recipes.measures import Curve
from mapformers.runs import checkpoint
from mapformers.runs.folder import RunFolder
from mapformers.runs.run import Run
from mapformers.tasks.graph_world import GraphWorld
from mapformers.training.loop import Trainer
from runs import copy, newest, quiet, run

FEW = 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def look(request) -> Callable[..., None]:
    """Try a file and damaged ones: a few that are always the same, or new ones for as many seconds as --fuzz says.

    The file itself must work. Some damage must be refused, unless what reads the file does without the damaged part.
    """
    seconds = request.config.getoption("--fuzz")

    def search(
        whole: bytes,
        attempt: Callable[[bytes], object],
        damaged: Callable[[bytes], st.SearchStrategy[bytes]] = mutations,
        does_without: bool = False,
    ) -> None:
        seen, refused = [0], [0]

        def one(content: bytes) -> None:
            seen[0] += 1
            try:
                attempt(content)
            except UserError as error:
                refused[0] += 1
                assert "\n" not in str(error).strip() and "Traceback" not in str(error)

        many = hypothesis.settings(
            max_examples=200 if seconds else FEW, deadline=None, derandomize=not seconds, database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )  # fmt: skip
        attempt(whole)
        until = time.monotonic() + seconds
        while True:
            many(hypothesis.given(damaged(whole))(one))()
            if time.monotonic() >= until:
                break
        print(f"\n{request.node.name}: {seen[0]} examples, {refused[0]} of them refused")
        assert does_without or refused[0] > 0, "no damage was noticed"

    return search


def test_config(trained, tmp_path, look):
    """The model is not built: a width of 10⁹ is a config, if one that no memory can hold."""
    folder = copy(trained, tmp_path / "run")

    def attempt(content: bytes) -> None:
        (folder / "config.json").write_bytes(content)
        _, config = RunFolder.open(folder)
        config.to_dict()
        assert mf.RunConfig.from_dict(config.to_dict()) == config

    look((trained / "config.json").read_bytes(), attempt)


def test_manifest(trained, tmp_path, look):
    """Loading a run, and going back to its newest whole checkpoint."""
    folder = tmp_path / "run"
    console = quiet()

    def attempt(content: bytes) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        copy(trained, folder)
        (newest(folder) / "manifest.json").write_bytes(content)
        assert mf.load(folder).step in (10, 12)
        trainer = Trainer(RunFolder.open(folder)[1], RunFolder(folder), console)
        trainer.restore()
        assert trainer.step in (10, 12)
        assert checkpoint.latest(folder / "checkpoints")[1] == []

    look((newest(trained) / "manifest.json").read_bytes(), attempt, does_without=True)


def test_metrics(trained, tmp_path, look):
    """Every reader: a loaded run, the curve of a recipe, and a run that goes on."""
    folder = copy(trained, tmp_path / "run")
    file, whole = folder / "metrics.jsonl", mf.load(folder)
    lines = set(RunFolder(trained).metrics_file.read_bytes().splitlines())

    def attempt(content: bytes) -> None:
        file.write_bytes(content)
        found = Run(folder, whole.config, whole.model, whole.result, whole.step).metrics
        kept = sum(line in lines for line in content.split(b"\n"))
        assert len(found) >= kept
        Curve().points({"curve": Curve().measure(whole)})
        RunFolder(folder).keep_metrics_up_to(12)
        assert len(RunFolder(folder).metrics()) == sum(record["step"] <= 12 for record in found)

    look((trained / "metrics.jsonl").read_bytes(), attempt, mutated_lines, does_without=True)


@pytest.mark.parametrize("world", ["flat", "shipped"])
def test_world(tmp_path, look, world):
    """A world that is accepted can be walked, and is the same after it was written and read."""
    flat = {
        "name": "flat", "nodes": ["Küche", "hall", 3], "actions": ["out", "in"], "start": "hall",
        "edges": [["Küche", "out", "hall"], ["hall", "in", "Küche"], [3, "in", "hall"], ["hall", "out", 3]],
        "observations": {"hall": "clock"},
    }  # fmt: skip
    text = GraphWorld.from_dict(flat).to_json() if world == "flat" else shipped()
    file = tmp_path / "world.json"

    def attempt(content: bytes) -> None:
        file.write_bytes(content)
        found = GraphWorld.load(file)
        assert GraphWorld.from_json(found.to_json()) == found
        task = mf.build_task("graph", world=found, steps=4)
        task.sample("iid", 2, mf.seeding.generator(0, "fuzz"))

    look(text.encode(), attempt)


def shipped() -> str:
    from mapformers.tasks.graph_world import find_world, shipped_worlds

    return min((find_world(name).to_json() for name in shipped_worlds()), key=len)
