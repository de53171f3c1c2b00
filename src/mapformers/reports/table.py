"""One table of text, shown on a terminal or written as Markdown, LaTeX, CSV or HTML."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rich.console import Console, Group, RenderableType
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

    `rich` can print a table as it is: ``Console().print(table)``.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    faint: Sequence[str] = ()

    def render(self, form: str = "terminal") -> str:
        """The table as text in one of :data:`FORMATS`."""
        if form not in RENDERERS:
            raise unknown("format", form, RENDERERS)
        return RENDERERS[form](self)

    def __rich__(self) -> RenderableType:
        table = RichTable(title=Text(self.title), title_justify="left")
        for index, heading in enumerate(self.headings):
            style = "dim" if heading in self.faint else None
            table.add_column(Text(heading), justify="right" if index else "left", no_wrap=index == 0, style=style)
        for row in self.rows:
            table.add_row(*map(Text, row))
        if self.below:
            table.add_section()
        for row in self.below:
            table.add_row(*map(Text, row))
        return Group(table, *(Text(note) for note in self.notes))


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
