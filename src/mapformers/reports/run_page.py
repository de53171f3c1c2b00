"""The page of one run: settings, scores beside players, the model itself, and every figure with how to read it.

One file without scripts, fonts or pictures from elsewhere: it opens from the disk, and can be sent by mail.
"""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapformers.reports.table import Table

LARGEST = 3_000_000  # bytes of a page
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'"
TOO_LARGE = (
    f"With the model in it, this page would have more than {LARGEST // 10**6} MB; `mapformers explore` shows the model."
)
LIVE_TITLE = "The model itself"
LIVE_TEXT = (
    "It runs in this page. Click into it, go on by keys or buttons, and watch what it expects and where it looks; "
    "“Take the tour” explains each part."
)

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
.live { display: block; box-sizing: border-box; width: min(84rem, 100vw - 2.4rem); height: 60rem;
        border: 1px solid var(--line); border-radius: 12px; margin: .6rem 0 .6rem 50%; transform: translateX(-50%); }
@media (max-width: 40rem) { .live { height: 85vh; } }
details { margin: .5rem 0; } summary { cursor: pointer; } code { font-size: .92em; }
"""


@dataclass(frozen=True)
class Entry:
    """One section: a figure (``picture``, a PNG) and how to read it, or, without one, why there is none."""

    title: str
    text: str
    picture: Path | None = None


@dataclass(frozen=True)
class LiveModel:
    """The model itself as a page (what `mapformers explore --export` writes), or, without one, why it is not here."""

    page: str = ""
    why: str = ""

    def section(self) -> str:
        """The page in a frame of its own: its parts and names do not mix with those of the report."""
        if not self.page:
            return f"<h2>{LIVE_TITLE}</h2>\n<p>{html.escape(self.why)}</p>" if self.why else ""
        inside = self.page.replace("&", "&amp;").replace("'", "&#39;")
        return (
            f"<h2>{LIVE_TITLE}</h2>\n<p>{LIVE_TEXT}</p>\n"
            f'<iframe class="live" title="{LIVE_TITLE}" sandbox="allow-scripts allow-downloads"'
            f" srcdoc='{inside}'></iframe>"
        )

    def script_policy(self) -> str:
        """A frame obeys the policy of the page around it besides its own, so that has to allow its script, too."""
        found = re.search(r"script-src 'sha256-[^']+'", self.page)
        return f"; {found.group()}" if found else ""


NOTHING_LIVE = LiveModel()


def run_page(
    title: str,
    facts: Mapping[str, Any],
    tables: Sequence[Table],
    entries: Sequence[Entry],
    live: LiveModel = NOTHING_LIVE,
) -> str:
    """The whole page as text. A live model that would make it too large is left out, and the page says so."""
    page = _page(title, facts, tables, entries, live)
    if live.page and len(page.encode()) > LARGEST:
        page = _page(title, facts, tables, entries, LiveModel(why=TOO_LARGE))
    return page


def _page(
    title: str, facts: Mapping[str, Any], tables: Sequence[Table], entries: Sequence[Entry], live: LiveModel
) -> str:
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
<meta http-equiv="Content-Security-Policy" content="{POLICY}{live.script_policy()}">
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
{live.section()}
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
