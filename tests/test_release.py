"""What a release says of itself in several places is the same everywhere: its version, its extras, its size."""

import re
import tomllib
from datetime import date
from pathlib import Path

from mapformers.cli.doctor import EXTRAS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"dev", "docs", "release"}


def read(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_newest_dated_section_of_the_changelog_is_the_version():
    sections = re.findall(r"^## (\S+) \((\S+)\)$", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert sections[0][0] == PROJECT["version"]
    assert [date.fromisoformat(day) for _, day in sections]


def test_the_citation_names_the_version_and_its_day():
    said = dict(re.findall(r"^(version|date-released): (\S+)$", read("CITATION.cff"), flags=re.MULTILINE))
    assert said["version"] == PROJECT["version"]
    assert f"## {said['version']} ({said['date-released']})" in read("CHANGELOG.md")


def test_the_page_on_installing_has_every_extra():
    page, extras = read("docs/install.md"), set(PROJECT["optional-dependencies"])
    assert set(re.findall(r"^\| `pip install 'mapformers\[(\w+)\]'` \|", page, flags=re.MULTILINE)) == (
        extras - FOR_DEVELOPERS
    )
    assert all(f"`{name}`" in page for name in FOR_DEVELOPERS)
    assert set(EXTRAS) == extras - FOR_DEVELOPERS


def test_the_page_of_examples_includes_every_example():
    included = re.findall(r"```python\n--8<--\n(.*)\n--8<--\n```", read("docs/examples.md"))
    assert sorted(included) == sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*.py"))


def test_the_readme_is_read_in_a_few_minutes():
    assert len(read("README.md").splitlines()) <= 150
