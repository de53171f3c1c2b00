"""docs/explore.html, the page that a clone opens with a double click, has the modules and the style as they are."""

import json
import re
from pathlib import Path

from mapformers.explorer.bundle import one_file
from mapformers.explorer.server import page_files

PAGE = Path(__file__).parents[2] / "docs" / "explore.html"
MODELS = re.compile(r'<script type="application/json" id="models">(.*?)</script>', re.DOTALL)


def test_the_live_page_is_of_the_modules_as_they_are():
    page = PAGE.read_text(encoding="utf-8")
    [data] = MODELS.findall(page)
    files = {name: content.decode() for name, content in page_files().items()}
    assert one_file(files, data) == page, "run `mapformers explore RUN RUN2 --export docs/explore.html`"


def test_it_holds_two_models_and_stays_small():
    [data] = MODELS.findall(PAGE.read_text(encoding="utf-8"))
    assert len(json.loads(data)["graphs"]) == 2
    assert PAGE.stat().st_size < 1_000_000
