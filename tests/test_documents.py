"""The documents are true: README's Python runs, its commands exist, and every generated part is up to date."""

import re
import shlex
from pathlib import Path

import pytest

import mapformers as mf
from mapformers.cli.main import COMMANDS
from mapformers.cli.report import documents, recipe_records
from mapformers.recipes import RECIPES
from mapformers.recipes.pages import finding
from mapformers.reports.marks import MEANINGS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a model is saved
    exec("\n".join(blocks("python")), {})
    assert "revisits" in capsys.readouterr().out


def test_the_commands_of_the_readme_exist():
    lines = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    assert {line[0] for line in lines} == {"make", "mapformers"}
    assert {line[1] for line in lines if line[0] == "mapformers"} <= set(COMMANDS)
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{line[1]}:" in makefile for line in lines if line[0] == "make")


def test_links_and_pictures_are_there():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets and all((ROOT / target).exists() for target in targets)


def test_generated_documents_are_up_to_date():
    wanted = documents(ROOT)
    for path, content in wanted.items():
        assert path.exists() and path.read_text() == content, f"{path.name} is stale: run `mapformers report --write`"
    assert set((ROOT / "docs/results").iterdir()) == {path for path in wanted if path.parent.name == "results"}


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.name)
def test_links_and_pictures_of_pages_are_there(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_finding_has_its_figures():
    for name, record in recipe_records(ROOT).items():
        assert finding(RECIPES[name], record), f"{name}: a figure of its finding was not measured"


def test_the_page_of_results_is_short():
    """One table for each recipe and benchmark, and a list of those that only choose settings; the rest is elsewhere."""
    page = (ROOT / "docs/results.md").read_text()
    tables = {section.splitlines()[0]: section.count("|---") for section in page.split("\n## ")[1:]}
    assert tables.pop("To choose settings") == 0
    assert len(tables) > 10 and set(tables.values()) == {1}
    assert page.count("mapformers reproduce") <= 1  # how to run what is not here yet
    assert not re.search(r"torch \d", page)


def test_no_page_names_a_folder_of_a_machine():
    for page in (ROOT / "docs").rglob("*.md"):
        assert not re.search(r"(?<![\w.])/(tmp|home|root|work|Users)/", page.read_text()), page.name


def test_the_pages_on_recipes_and_tasks_name_them_all():
    assert [name for name in mf.list_recipes() if f"`{name}`" not in (ROOT / "docs/recipes.md").read_text()] == []
    assert [name for name in mf.list_tasks() if f"| [`{name}`](" not in (ROOT / "docs/tasks.md").read_text()] == []


def test_the_page_on_recipes_explains_every_mark():
    page = (ROOT / "docs/recipes.md").read_text()
    rows = "".join(line.split("|")[1] for line in page.split("## Marks")[1].splitlines() if line.startswith("|"))
    assert [mark for mark in MEANINGS if mark not in rows] == []


RUN_ELSEWHERE = {
    "examples.md": "tests/test_examples.py",
    "recipes.md": "tests/recipes/test_processes.py",
    "command-line.md": "tests/cli/test_foreign.py",
    "families.md": "tests/tasks/test_family_tree.py",
    "export.md": "tests/explorer/test_onnx_export.py",
    "worlds.md": "tests/tasks/test_graph_world.py",
}
WITH_PYTHON = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```python\n" in page.read_text()]


def test_every_page_that_is_run_elsewhere_has_python():
    assert set(RUN_ELSEWHERE) <= {page.name for page in WITH_PYTHON}


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda path: path.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    if page.name in RUN_ELSEWHERE:
        assert page.name in (ROOT / RUN_ELSEWHERE[page.name]).read_text()
        return
    monkeypatch.chdir(tmp_path)  # where its pictures and runs go
    exec("\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)), {})
