"""`--help` of every command is in the words of a person: no type of Python, no default that is nothing."""

import pytest

from mapformers.cli.help import plain_help
from mapformers.cli.lm import COMMANDS as OF_LM
from mapformers.cli.main import COMMANDS, main

LINES = [[name] for name in COMMANDS] + [["lm", name] for name in OF_LM]
SETTINGS = ["train", "--task", "navigation", "--model", "mapem"]


OPTIONS = {
    "demo": ["--scale", "--seed", "--out"],
    "train": ["--task", "--model", "--scale", "--seed", "--out", "--resume"],
    "eval": ["--splits", "--n-sequences"],
    "show": ["--split", "--seed"],
    "list": ["models", "tasks", "recipes"],
    "reproduce": ["--scale", "--seeds", "--rows", "--jobs", "--runs", "--results"],
    "report": ["--results", "--write"],
}


@pytest.mark.parametrize("line", [[], *LINES, SETTINGS], ids=" ".join)
def test_help_names_the_options_and_speaks_of_nothing_that_is_not_there(line, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    try:
        assert main([*line, "--help"]) == 0
    except SystemExit as ended:
        assert not ended.code
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().out
    assert said.startswith("usage: mapformers " + " ".join(line[:2] if line[:1] == ["lm"] else line[:1]))
    assert [option for option in OPTIONS.get(" ".join(line[:1]), []) if option not in said] == []
    assert "{None}" not in said and "default: None" not in said and "default: )" not in said and "\n\n\n" not in said
    assert "STR (required)" not in said and "\x1b" not in said
    sides = {len(row) for row in said.splitlines() if row.startswith(("│", "╭", "╰"))}
    assert len(sides) <= 1, "a side of a box has moved"


DRAWN = """usage: tool [-h] [{None}|PATH]

╭─ options ──────────────────────╮
│ --out {None}|PATH  Where to    │
│                    (default:   │
│                    None)       │
│ --how {None,fast}  (default: ) │
│ --n {None}|INT     (default: 3)│
╰────────────────────────────────╯
"""


def test_only_what_says_nothing_is_taken_out():
    assert (
        plain_help(DRAWN)
        == """usage: tool [-h] [PATH]

╭─ options ──────────────────────╮
│ --out PATH         Where to    │
│ --how {fast}                   │
│ --n INT            (default: 3)│
╰────────────────────────────────╯
"""
    )
