"""One table of text, shown on a terminal or written as Markdown, LaTeX, CSV or HTML."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from mapformers.errors import unknown
from mapformers.reports.formats import to_csv, to_html, to_latex, to_markdown

Format = Literal["terminal", "md", "markdown", "latex", "csv", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Table:
    """A title, headings and rows of text; every format escapes what it must, so the text is plain.

    ``below``  rows under a rule, such as what players score.
    ``notes``  sentences under the table.
    ``faint``  headings of columns that matter less.
    ``words``  headings of columns of sentences, which are aligned left and may take several lines.

    `rich` can print a table as it is: ``Console().print(table)``.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    faint: Sequence[str] = ()
    words: Sequence[str] = ()

    def render(self, form: str = "terminal") -> str:
        """The table as text in one of `FORMATS`."""
        if form not in RENDERERS:
            raise unknown("format", form, RENDERERS)
        return RENDERERS[form](self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = Measurement.get(console, options.update(width=1000), self._drawn()).maximum
        yield self._drawn(narrow=whole > options.max_width and not self.words)
        yield from (Text(note) for note in self.notes)

    def _drawn(self, narrow: bool = False) -> RichTable:
        """For a terminal; ``narrow``: without lines between columns, and with brackets below their figure."""
        look: dict[str, Any] = {"box": box.HORIZONTALS, "padding": (0, 0, 0, 1)} if narrow else {}
        table = RichTable(title=Text(self.title), title_justify="left", **look)
        for index, heading in enumerate(self.headings):
            style, words = "dim" if heading in self.faint else None, heading in self.words
            side: Literal["left", "right"] = "right" if index and not words else "left"
            table.add_column(Text(heading), justify=side, no_wrap=index == 0 and not words and not narrow, style=style)
        for row in self.rows:
            name, *cells = row
            table.add_row(Text(name), *(Text(cell.replace(" (", "\n(") if narrow else cell) for cell in cells))
        if self.below:
            table.add_section()
        for row in self.below:
            table.add_row(*map(Text, row))
        return table


def _for_terminal(table: Table) -> str:
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get()


RENDERERS: Mapping[str, Callable[[Table], str]] = {
    "terminal": _for_terminal,
    "md": to_markdown,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "html": to_html,
}
