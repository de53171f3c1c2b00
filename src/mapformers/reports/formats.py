"""How a table is written in Markdown, LaTeX (booktabs), CSV and HTML, each with its own escapes."""

import csv
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{mark: f"\\{mark}" for mark in "\\`*_[]|"}}
LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "±": "$\\pm$",
    "×": "$\\times$",
    "–": "--",
    "−": "$-$",
    "·": "$\\cdot$",
    "≥": "$\\geq$",
    "≤": "$\\leq$",
    "≈": "$\\approx$",
    "→": "$\\rightarrow$",
    "←": "$\\leftarrow$",
    "…": "\\dots{}",
    "π": "$\\pi$",
    "ω": "$\\omega$",
    "θ": "$\\theta$",
    "Δ": "$\\Delta$",
    "²": "$^2$",
    "[": "{[}",  # at the start of a row it would be an argument of the \\\\ before it
    "†": "\\textdagger{}",
    "‡": "\\textdaggerdbl{}",
    "§": "\\S{}",
    "↑": "$\\uparrow$",
    "↓": "$\\downarrow$",
    "↗": "$\\nearrow$",
    "°": "\\textdegree{}",
}


class TableText(Protocol):
    """What a format needs to know of a table."""

    @property
    def title(self) -> str: ...
    @property
    def headings(self) -> Sequence[str]: ...
    @property
    def rows(self) -> Sequence[Sequence[str]]: ...
    @property
    def below(self) -> Sequence[Sequence[str]]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def words(self) -> Sequence[str]: ...


def escape_markdown(text: str) -> str:
    return _replace(text, MARKDOWN)


def escape_latex(text: str) -> str:
    return _replace(text, LATEX)


def to_markdown(table: TableText) -> str:
    """The table alone, then its notes; a page gives the title. Rows below the rule have their name in italics."""
    sides = ["---" if left else "--:" for left in _left(table)]
    lines = [_markdown_row(map(escape_markdown, table.headings)), f"|{'|'.join(sides)}|"]
    lines += [_markdown_row(map(escape_markdown, row)) for row in table.rows]
    for name, *cells in table.below:
        lines.append(_markdown_row([f"*{escape_markdown(name)}*", *map(escape_markdown, cells)]))
    for note in table.notes:
        lines += ["", escape_markdown(note)]
    return "\n".join(lines) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _left(table: TableText) -> list[bool]:
    """Which columns are aligned left: the first, and those of words."""
    return [index == 0 or heading in table.words for index, heading in enumerate(table.headings)]


def to_latex(table: TableText) -> str:
    """A `table` environment; the document needs ``\\usepackage{booktabs}``."""
    lines = [
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{escape_latex(table.title)}}}",
        f"  \\begin{{tabular}}{{{''.join('l' if left else 'r' for left in _left(table))}}}",
        "    \\toprule",
        _latex_row(table.headings),
        "    \\midrule",
        *map(_latex_row, table.rows),
    ]
    if table.below:
        lines += ["    \\midrule", *map(_latex_row, table.below)]
    lines += ["    \\bottomrule", "  \\end{tabular}"]
    lines += [f"  \\par\\footnotesize {escape_latex(note)}" for note in table.notes]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return f"    {' & '.join(map(escape_latex, cells))} \\\\"


def to_csv(table: TableText) -> str:
    """Headings and rows, then each note as a row of one cell; the title has no place in it."""
    text = io.StringIO()
    notes = [[note] for note in table.notes]
    csv.writer(text, lineterminator="\n").writerows([table.headings, *table.rows, *table.below, *notes])
    return text.getvalue()


def csv_row(*cells: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def to_html(table: TableText) -> str:
    """A `table` element, its notes after it."""
    lines = [
        "<table>",
        f"  <caption>{html.escape(table.title)}</caption>",
        f"  <thead>{_html_row(table.headings, 'th')}</thead>",
        "  <tbody>",
        *(f"    {_html_row(row)}" for row in table.rows),
        "  </tbody>",
    ]
    if table.below:
        lines += ["  <tbody>", *(f"    {_html_row(row)}" for row in table.below), "  </tbody>"]
    lines += ["</table>", *(f"<p>{html.escape(note)}</p>" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _html_row(cells: Sequence[str], first: str = "td") -> str:
    return f"<tr>{''.join(f'<{first}>{html.escape(cell)}</{first}>' for cell in cells)}</tr>"


def _replace(text: str, marks: Mapping[str, str]) -> str:
    """All marks in one pass, so that what an escape is written with is not escaped again."""
    return re.sub("|".join(map(re.escape, marks)), lambda found: marks[found[0]], " ".join(text.split("\n")))
