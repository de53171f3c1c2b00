"""What pages of results share: sections, blocks that are filled in, and where figures come from."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mapformers.errors import require
from mapformers.reports.table import Table

WRITTEN_BY = "Written by `mapformers report --write` from the files in `results/`."


def join_sections(*sections: str) -> str:
    """Sections of a page with one blank line between them."""
    return "\n\n".join(section.strip("\n") for section in sections if section) + "\n"


def titled(table: Table) -> str:
    """A table under its title, for a page that has several."""
    return f"{table.title}.\n\n{table.render('markdown')}"


def origins(records: Sequence[Mapping[str, Any]]) -> str:
    """Commands, commits, versions and machines of measured runs, each said once."""
    commands = _distinct(f"`{record['command']}`" for record in records)
    commits = _distinct(f"`{record['commit']}`" for record in records if record.get("commit"))
    versions = _distinct(", ".join(f"{k} {v}" for k, v in record["versions"].items()) for record in records)
    machines = _distinct(", ".join(f"{k} {v}" for k, v in record["hardware"].items()) for record in records)
    lines = [f"- Command: {command}" for command in commands]
    lines += [f"- Commit: {commit}" for commit in commits] or ["- Commit: not recorded"]
    lines += [f"- Versions: {text}" for text in versions]
    lines += [f"- Machine: {text}" for text in machines]
    return "\n".join(lines)


def replace_block(text: str, name: str, content: str) -> str:
    """Put ``content`` between ``<!-- name:begin -->`` and ``<!-- name:end -->``."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    require(begin in text and end in text, f"The document has no block {name!r} to fill.")
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
