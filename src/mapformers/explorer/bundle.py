"""The page as one file: its modules, its style and the models themselves, which then run in the browser.

There is no server and no Python behind such a file. It opens from the disk and from any host of static files.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from mapformers.errors import require
from mapformers.explorer.loaded_runs import LoadedRuns, figures_of
from mapformers.explorer.server import page_files
from mapformers.explorer.worlds import draw_world, kind_of
from mapformers.tasks import Task

WORLDS = 4  # of each split, of tasks whose worlds the page cannot draw by itself
MAX_WORLD = 100_000  # characters of one of them
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
DECLARED = re.compile(r"^export (?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)


def bundle(loaded: LoadedRuns, players: Mapping[str, Any] | None = None) -> str:
    """The text of the page, with the models of the runs in it; ``players``: their scores, where these are known."""
    from mapformers.explorer.step_graph import step_graph  # torch.export takes a second to load

    files = {name: content.decode() for name, content in page_files().items()}
    data = {
        "about": {**loaded.about(), "players": loaded.players() if players is None else figures_of(players)},
        "graphs": [step_graph(model) for model in loaded.models],
        "worlds": {} if kind_of(loaded.task) == "grid" else sample_worlds(loaded.task),
    }
    return one_file(files, json.dumps(data, separators=(",", ":"), allow_nan=False))


def one_file(files: Mapping[str, str], data: str) -> str:
    """index.html with everything in it that it would load; its policy allows these very scripts and nothing else."""
    script, style, data = joined_modules(files, "main.js"), files["style.css"], data.replace("</", r"<\/")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    replaced = {
        '<link rel="stylesheet" href="style.css">': f"<style>{style}</style>",
        '<script type="module" src="main.js"></script>': "",
        '<meta charset="utf-8">': '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "</body>": f'<script type="application/json" id="models">{data}</script>\n'
        f'<script type="module">{script}</script>\n</body>',
    }
    page = files["index.html"]
    for old, new in replaced.items():
        assert page.count(old) == 1, old
        page = page.replace(old, new)
    return page


def joined_modules(files: Mapping[str, str], name: str) -> str:
    """A module and all that it imports as one script: each file becomes a function, called after those that it needs.

    The files are written for this: they import whole names, and export what they declare.
    """
    parts: dict[str, str] = {}
    _collect(files, name, parts, ())
    script = "\n".join(parts.values())
    left = re.search(r"^(?:import|export)\b.*", script, re.MULTILINE)
    require(left is None, f"The page cannot be joined into one script: {left and left.group()}")
    return script.replace("</script", r"<\/script")


def _collect(files: Mapping[str, str], name: str, parts: dict[str, str], within: tuple[str, ...]) -> None:
    require(name not in within, f"The modules of the page import each other in a circle: {' → '.join((*within, name))}")
    if name in parts:
        return
    for _, needed in IMPORT.findall(files[name]):
        _collect(files, f"{needed}.js", parts, (*within, name))
    given = ", ".join(DECLARED.findall(files[name]))
    text = EXPORT.sub("", IMPORT.sub(r"const {\1} = module_\2;\n", files[name]))
    parts[name] = f"const module_{name.removesuffix('.js')} = (() => {{\n{text}\nreturn {{ {given} }};\n}})();"


def sample_worlds(task: Task[Any]) -> dict[str, list[Any]]:
    """Worlds or sequences of every split, which the page goes round; a split whose worlds are too large has none."""
    worlds = {split: [draw_world(task, split, seed) for seed in range(1, 1 + WORLDS)] for split in task.splits}
    return {
        split: found
        for split, found in worlds.items()
        if split == "iid" or max(len(json.dumps(world)) for world in found) <= MAX_WORLD
    }


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
