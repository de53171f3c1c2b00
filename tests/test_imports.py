"""Imports between folders go one way, a layer is a file, and a file of `layers/` is a layer."""

import ast
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT / "scripts"))

import imports  # noqa: E402
import longest  # noqa: E402
import mapformers as mf  # noqa: E402
from mapformers.modules.layer import LAYERS  # noqa: E402
from mapformers.registry import RECIPES, TASKS  # noqa: E402


def test_imports_between_folders_go_one_way():
    edges = imports.graph()
    assert set(edges) == set(imports.FOLDERS)
    assert imports.wrong_way(edges) == []


def test_the_test_of_directions_can_fail():
    assert imports.wrong_way({"lie": {"ops"}}) == ["lie imports ops"]
    assert imports.wrong_way({"attic": {"lie"}}) == ["attic is not in FOLDERS"]


def test_the_list_of_imports_in_contributing_is_as_it_is():
    assert imports.contributing(imports.graph()) == (PROJECT / "CONTRIBUTING.md").read_text()
    assert (PROJECT / "docs" / "images" / "imports.png").exists()


def test_every_file_of_layers_registers_one_model_and_every_model_has_a_file():
    files = {path.stem for path in (imports.SOURCE / "layers").glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in mf.list_models()} == files
    for name in mf.list_models():
        layer = LAYERS[name].layer
        assert layer.__module__ == f"mapformers.layers.{name.replace('-', '_')}"
        source = (imports.SOURCE / "layers" / f"{name.replace('-', '_')}.py").read_text()
        assert source.count("\nregister_layer(") == 1


def test_every_name_is_listed_with_a_summary_from_the_first_line_of_its_file():
    for registry in (LAYERS, TASKS, RECIPES):
        for name in registry:
            assert len(registry.summary(name)) > 20, name
            assert registry[name] is registry[name]  # its file registers what its first line says


def test_no_two_files_named_after_a_path_mean_different_things():
    named = [path.relative_to(imports.SOURCE).as_posix() for path in imports.SOURCE.rglob("*path*.py")]
    assert sorted(named) == ["layers/path.py", "recipes/path_rates_table1.py"]  # PaTH, and the rate of a path


def test_files_and_functions_are_short():
    for path in sorted((PROJECT / "src").rglob("*.py")):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        assert all(length <= 60 for length, _ in longest.functions(ast.parse(text), path.name)), path
