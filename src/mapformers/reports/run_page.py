"""The page of one run: its settings, its scores beside players, and every figure with a sentence on how to read it.

One file without scripts, fonts or pictures from elsewhere: it opens from the disk, and can be sent by mail.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.reports.table import Table

LARGEST = 3_000_000  # bytes of a page

STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --soft: #666; --line: #ddd; --card: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181c; --soft: #a0a4aa; --line: #3a3d42; } }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; color: var(--ink); background: var(--paper);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p { margin: .4rem 0; } .soft, figcaption { color: var(--soft); } figure { margin: .6rem 0; }
figure img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; padding: 6px;
             box-sizing: border-box; }
@media (max-width: 40rem) { figure { overflow-x: auto; } figure img { max-width: none; width: 42rem; } }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; margin: .5rem 0; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: right; padding: .18rem .7rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
details { margin: .5rem 0; } summary { cursor: pointer; } code { font-size: .92em; }
"""


@dataclass(frozen=True)
class Entry:
    """One section: a figure (``picture``, a PNG) and how to read it, or, without one, why there is none."""

    title: str
    text: str
    picture: Path | None = None


def live_model_section(live_page: str = "") -> str:
    """The slot for the model itself: what is given here, a fragment of HTML, stands before the figures."""
    return f'<section id="live-model">{live_page}</section>' if live_page else ""


def run_page(
    title: str, facts: Mapping[str, Any], tables: Sequence[Table], entries: Sequence[Entry], live_page: str = ""
) -> str:
    """The whole page as text."""
    sections = "\n".join(_section(entry) for entry in entries if entry.picture is not None)
    absent = [entry for entry in entries if entry.picture is None]
    missing = ""
    if absent:
        items = "".join(f"<li>{html.escape(entry.title)}: {html.escape(entry.text)}</li>" for entry in absent)
        missing = f"<h2>What this run does not have</h2>\n<ul>{items}</ul>"
    settings = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>" for name, value in facts.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<p class="soft">Written by <code>mapformers analyze</code>.
All numbers are in <code>analysis.json</code> beside this page.</p>
<details><summary>Settings</summary><div class="scroll"><table>{settings}</table></div></details>
<h2>Scores</h2>
{"".join(f'<div class="scroll">{table.render("html")}</div>' for table in tables)}
{live_model_section(live_page)}
{sections}
{missing}
</body>
</html>
"""


def _section(entry: Entry) -> str:
    assert entry.picture is not None
    picture = base64.b64encode(entry.picture.read_bytes()).decode()
    return (
        f"<h2>{html.escape(entry.title)}</h2>\n<figure>"
        f'<img alt="{html.escape(entry.title)}" src="data:image/png;base64,{picture}">'
        f"<figcaption>{html.escape(entry.text)}</figcaption></figure>"
    )
