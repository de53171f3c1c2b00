"""The house: imports between rooms go one way, a layer is a file, and a file of `layers/` is a layer."""

import ast
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT / "scripts"))

import longest  # noqa: E402
import mapformers as mf  # noqa: E402
import rooms  # noqa: E402
from mapformers.modules.layer import LAYERS  # noqa: E402
from mapformers.registry import RECIPES, TASKS  # noqa: E402


def test_imports_between_rooms_go_one_way():
    edges = rooms.graph()
    assert set(edges) == set(rooms.ROOMS)
    assert rooms.wrong_way(edges) == []


def test_the_test_of_directions_can_fail():
    assert rooms.wrong_way({"lie": {"ops"}}) == ["lie imports ops"]
    assert rooms.wrong_way({"attic": {"lie"}}) == ["attic is not in ROOMS"]


def test_the_picture_in_contributing_is_of_the_rooms_as_they_are():
    assert rooms.contributing(rooms.graph()) == (PROJECT / "CONTRIBUTING.md").read_text()
    assert (PROJECT / "docs" / "images" / "rooms.png").exists()


def test_every_file_of_layers_registers_one_model_and_every_model_has_a_file():
    files = {path.stem for path in (rooms.SOURCE / "layers").glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in mf.list_models()} == files
    for name in mf.list_models():
        layer = LAYERS[name].layer
        assert layer.__module__ == f"mapformers.layers.{name.replace('-', '_')}"
        source = (rooms.SOURCE / "layers" / f"{name.replace('-', '_')}.py").read_text()
        assert source.count("\nregister_layer(") == 1


def test_every_name_is_listed_with_a_summary_from_the_first_line_of_its_file():
    for registry in (LAYERS, TASKS, RECIPES):
        for name in registry:
            assert len(registry.summary(name)) > 20, name
            assert registry[name] is registry[name]  # its file registers what its first line says


def test_no_two_files_named_after_a_path_mean_different_things():
    named = [path.relative_to(rooms.SOURCE).as_posix() for path in rooms.SOURCE.rglob("*path*.py")]
    assert named == ["layers/path.py"]


def test_files_and_functions_are_short():
    for path in sorted((PROJECT / "src").rglob("*.py")):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        assert all(length <= 60 for length, _ in longest.functions(ast.parse(text), path.name)), path
