"""The documents are true: README's Python runs, its commands exist, and every generated part is up to date."""

import re
import shlex
from pathlib import Path

import pytest

from mapformers.cli.main import COMMANDS
from mapformers.recipes.report import documents

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]):
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
    for path, content in documents(ROOT).items():
        assert path.read_text() == content, f"{path.name} is stale: run `mapformers report --write`"


@pytest.mark.parametrize("page", ["tasks.md", "families.md"])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where its pictures go
    text = (ROOT / "docs" / page).read_text()
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)), {})
