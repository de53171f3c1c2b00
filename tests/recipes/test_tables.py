"""One table, five formats: each escapes what it must, and none loses a cell."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from making import RECORD
from rich.console import Console

import mapformers as mf
from mapformers.benchmarks.report import REPORTS, record_file
from mapformers.cli.main import main
from mapformers.cli.report import recipe_records
from mapformers.cli.tables import player_table, split_table
from mapformers.files import read_json
from mapformers.recipes import RECIPES
from mapformers.recipes.pages import recipe_tables
from mapformers.recipes.record import with_added_rows
from mapformers.reports import FORMATS, Table

ROOT = Path(__file__).parents[2]
NASTY = ["a & b", "c | d", "<e>", 'f, "g"', "W_q", "0.5 ± 0.1", "100 % [bold]", "\\ {x} $y$ #1 ~ ^", "`*h*`", ""]
TABLE = Table("T & <i>_%", ["row", "value"], [[text, "1"] for text in NASTY], [["player: x_y", "2"]], ["† a & b_c"])


def test_csv_comes_back_as_it_was():
    rows = list(csv.reader(io.StringIO(TABLE.render("csv"))))
    assert rows == [["row", "value"], *([text, "1"] for text in NASTY), ["player: x_y", "2"], ["† a & b_c"]]


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.cells, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] in ("td", "th"):
            self.cells[-1] += data

    def handle_endtag(self, tag):
        self.tags.append("/" + tag)


def test_html_comes_back_as_it_was():
    parser = Cells()
    parser.feed(TABLE.render("html"))
    assert parser.cells == ["row", "value", *(cell for text in NASTY for cell in (text, "1")), "player: x_y", "2"]
    assert {tag for tag in parser.tags if not tag.startswith("/")} <= {
        "table", "caption", "thead", "tbody", "tr", "th", "td", "p",
    }  # fmt: skip
    assert html.escape("T & <i>_%") in TABLE.render("html") and "† a &amp; b_c" in TABLE.render("html")


def unescape_markdown(text):
    return html.unescape(re.sub(r"\\([\\`*_\[\]|])", r"\1", text))


def test_markdown_has_one_cell_for_each_and_nothing_that_markdown_reads():
    lines = TABLE.render("markdown").splitlines()
    assert lines[:2] == ["| row | value |", "|---|--:|"]
    for line, text in zip(lines[2:], NASTY):
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        assert [unescape_markdown(cell.strip()) for cell in cells] == [text, "1"]
        assert not re.search(r"(?<!\\)[`*_\[\]<>]", line)
    assert "| *player: x\\_y* | 2 |" in lines and lines[-1] == "† a &amp; b\\_c"


LATEX_MARKS = {
    "\\&": "&", "\\%": "%", "\\$": "$", "\\#": "#", "\\_": "_", "\\{": "{", "\\}": "}", "\\textbackslash{}": "\\",
    "\\textasciitilde{}": "~", "\\textasciicircum{}": "^", "\\textless{}": "<", "\\textgreater{}": ">",
    "\\textbar{}": "|", "$\\pm$": "±", "{[}": "[",
}  # fmt: skip


def test_latex_is_a_booktabs_table_in_which_every_mark_is_escaped():
    text = TABLE.render("latex")
    begin, body = text.split("\\midrule\n", 1)
    assert "\\begin{tabular}{lr}" in begin and "\\toprule" in begin and "\\caption{T \\& \\textless{}i" in begin
    pattern = "|".join(map(re.escape, sorted(LATEX_MARKS, key=len, reverse=True)))
    for line, cell in zip(body.splitlines(), NASTY):
        inside = line[4:].removesuffix(" & 1 \\\\")
        assert not re.search(r"[&%$#_{}~^<>|±]", re.sub(pattern, "", inside)), inside
        assert re.sub(pattern, lambda mark: LATEX_MARKS[mark[0]], inside) == cell
    assert body.count("\\midrule") == 1 and "\\bottomrule" in body and "\\textdagger{} a \\& b\\_c" in body


def committed_tables():
    """Every table that `mapformers report` makes of the results in the repository."""
    for name, record in recipe_records(ROOT).items():
        yield from recipe_tables(with_added_rows(RECIPES[name], record["runs"]), record)
    for name, report in REPORTS.items():
        if record_file(ROOT / "results", name).exists():
            yield from report.tables(read_json(record_file(ROOT / "results", name)))


def test_every_report_is_latex_that_can_be_set():
    """Letters that LaTeX knows by itself, as many cells as columns, and no [ where \\\\ would take it for its own."""
    tables = list(committed_tables())
    assert len(tables) > 10
    for table in [*tables, Table("T", ["a", "b"], [["1", "≥ 2"], ["[x]", "−3"]])]:
        text = table.render("latex")
        assert {letter for letter in text if ord(letter) > 0x17F} == set(), table.title
        columns = len(re.search(r"begin{tabular}{([lr]+)}", text)[1])
        body = [line for line in text.splitlines() if line.endswith("\\\\")]
        assert {len(re.split(r"(?<!\\)&", line)) for line in body} == {columns}, table.title
        assert not re.search(r"^\s*\[", text, re.MULTILINE)


def test_several_tables_of_csv_are_told_apart_by_their_titles(mini, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(RECIPES._entries, "mini", replace(mini, worlds={**mini.worlds, "2D": {"dims": 2}}))
    runs = RECORD["runs"] + [{**run, "world": "2D"} for run in RECORD["runs"]]
    (tmp_path / "mini.json").write_text(json.dumps({**RECORD, "runs": runs}))
    assert main(["report", "mini", "--results", str(tmp_path), "--format", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    titles = [row[0] for row in rows if len(row) == 1 and row[0].startswith("mini, ")]
    tables = len([row for row in rows if row[:2] in (["1D", "seeds"], ["2D", "seeds"])])
    assert len(titles) >= tables == 2 and len(set(titles)) == len(titles)


def test_the_terminal_shows_text_and_not_markup():
    console = Console(file=io.StringIO(), width=120)
    console.print(TABLE)
    printed = console.file.getvalue()
    assert all(text in printed for text in [*NASTY, "T & <i>_%", "player: x_y", "† a & b_c"])


def test_a_terminal_too_narrow_puts_brackets_below_and_loses_nothing():
    cells = ["0.095 ± 0.028 (0.08) ↓‡"] * 3
    table = Table("T", ["row", "IID", "OOD-dense", "OOD-sparse"], [["a row of some length ↗°", *cells]])
    for width, lines in ((120, 1), (76, 2)):
        console = Console(file=io.StringIO(), width=width)
        console.print(table)
        printed = console.file.getvalue()
        assert printed.count("0.095 ± 0.028") == printed.count("(0.08) ↓‡") == 3
        assert sum("0.0" in line for line in printed.splitlines()) == lines
        assert max(map(len, printed.splitlines())) <= width


def test_columns_of_words_are_aligned_left():
    table = Table("T", ["claim", "measured", "verdict"], [["a", "1", "holds"]], words=["claim", "verdict"])
    assert "|---|--:|---|" in table.render("md") and "{lrl}" in table.render("latex")


def test_every_format_is_a_text_and_others_are_refused():
    assert all("W" in TABLE.render(form) for form in FORMATS)
    with pytest.raises(mf.UserError, match="no format named 'latexx'; did you mean 'latex'"):
        TABLE.render("latexx")


def test_splits_of_a_run_are_such_a_table():
    scores = {"accuracy": {"value": 0.5, "count": 3}, "exact_match": {"value": None, "count": 3}}
    table = split_table({"iid": scores}, "mine")
    assert table.headings == ["split", "accuracy", "exact match", "cases"]
    assert table.rows == [["iid", "0.5000", "–", "3"]]


def test_a_player_with_fewer_cases_than_the_model_says_why():
    scores = {"iid": {"accuracy": {"value": 0.5, "count": 3}}}
    assert player_table("best-lag", scores, 100).notes == []
    [note] = player_table("best-lag", scores, 512).notes
    assert note == "Players answer the first 128 of the 512 sequences, so they have fewer cases."


def test_report_as_json(mini, tmp_path, capsys):
    (tmp_path / "mini.json").write_text(json.dumps(RECORD))
    assert main(["report", "mini", "--results", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scale"] == "cpu" and found["recipes"]["mini"]["metric"] == "accuracy"
    figures = found["recipes"]["mini"]["figures"]
    [cell] = [f for f in figures if (f["row"], f["world"], f["split"]) == ("MapWM", "1D", "iid")]
    assert (cell["mean"], cell["low"], cell["high"], cell["seeds"], cell["paper"]) == (0.625, 0.5, 0.75, 2, 0.75)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("markdown", "| RoPE (tiny) ° | 1 | 0.125 | 0.062 |"),
        ("latex", "    RoPE (tiny) \\textdegree{} & 1 & 0.125 & 0.062 \\\\"),
        ("md", "| MapWM ° | 2 | 0.625 ± 0.177 (0.75) ↓ | 0.250 ± 0.000 |"),
        ("csv", "MapWM °,2,0.625 ± 0.177 (0.75) ↓,0.250 ± 0.000"),
        ("html", "    <tr><td>RoPE (tiny) °</td><td>1</td><td>0.125</td><td>0.062</td></tr>"),
    ],
    ids=lambda value: value.split()[0],
)
def test_report_prints_each(mini, tmp_path, capsys, form, expected):
    (tmp_path / "mini.json").write_text(json.dumps(RECORD))
    assert main(["report", "mini", "--results", str(tmp_path), "--format", form]) == 0
    assert expected in capsys.readouterr().out.splitlines()
    assert {path.name for path in tmp_path.iterdir()} == {"mini.json"}  # without --write it only prints
