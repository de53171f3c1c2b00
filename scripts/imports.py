"""Which folder of the library imports which. Imports go one way: a folder imports those before it in FOLDERS.

python scripts/imports.py          print the graph
python scripts/imports.py --draw     draw it into docs/images/imports.png and refresh the list in CONTRIBUTING.md
"""

import ast
import re
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent
SOURCE = PROJECT / "src" / "mapformers"
BASE = ("errors", "files", "modes", "seeding", "config", "registry", "plugins", "signals", "stages", "progress")
# A folder may import those before it. The files beside the folders count as one, the base; model.py is its own, with
# starts.py.
FOLDERS = (
    "base", "lie", "ops", "modules", "layers", "model", "tasks", "players", "runs", "evaluation", "training", "lm",
    "hf", "analysis", "explorer", "reports", "recipes", "launch", "benchmarks", "cli",
)  # fmt: skip


def folder_of(module: str) -> str:
    """``mapformers.modules.attention`` -> modules; the files of the base count as one folder."""
    parts = module.split(".")
    first = parts[1] if len(parts) > 1 else "api"
    if not ((SOURCE / first).is_dir() or (SOURCE / f"{first}.py").exists()):
        return "api"  # a name that `mapformers` itself offers
    return {"model_config": "model", "starts": "model", "__main__": "cli"}.get(
        first, "base" if first in BASE else first
    )


def module_of(path: Path) -> str:
    parts = ["mapformers", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """Every module of the library that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name.split(".")[0] == "mapformers"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mapformers":
            if node.module == "mapformers":
                found |= {f"mapformers.{name.name}" for name in node.names}
            else:
                found.add(str(node.module))
    return found


def graph() -> dict[str, set[str]]:
    """Folder -> the other folders it imports. The API itself (`__init__.py`) only names things and is left out."""
    edges: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for path in sorted(SOURCE.rglob("*.py")):
        folder = folder_of(module_of(path))
        if folder != "api":
            edges.setdefault(folder, set()).update({folder_of(module) for module in imports_of(path)} - {folder, "api"})
    return edges


def wrong_way(edges: dict[str, set[str]]) -> list[str]:
    """Imports from a folder to a later one, and folders that FOLDERS does not know."""
    order = {folder: index for index, folder in enumerate(FOLDERS)}
    unknown = [f"{folder} is not in FOLDERS" for folder in edges if folder not in order]
    known = {folder: targets for folder, targets in edges.items() if folder in order}
    return unknown + [
        f"{folder} imports {target}"
        for folder, targets in known.items()
        for target in sorted(targets)
        if order.get(target, len(order)) >= order[folder]
    ]


def nearest(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph without what follows from it: an arrow past a folder that itself leads there is left out."""

    def reach(folder: str) -> set[str]:
        return set().union(*({target} | reach(target) for target in edges[folder]))

    return {
        folder: {t for t in targets if not any(t in reach(other) for other in targets - {t})}
        for folder, targets in edges.items()
    }


def listing(edges: dict[str, set[str]]) -> str:
    order = FOLDERS.index
    lines = [f"{folder:<11} imports {', '.join(sorted(edges[folder], key=order)) or 'nothing'}" for folder in FOLDERS]
    return "\n".join(lines)


def draw(edges: dict[str, set[str]], path: Path) -> None:
    """Folders from the base up, an arrow from each to the nearest ones it imports."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    height = {folder: index for index, folder in enumerate(FOLDERS)}
    figure, axes = plt.subplots(figsize=(7, 8.5))
    for folder, y in height.items():
        style = {"boxstyle": "round,pad=0,rounding_size=0.1", "facecolor": "#eef2f7", "edgecolor": "#44597a"}
        axes.add_patch(FancyBboxPatch((-0.55, y - 0.3), 1.1, 0.6, **style))
        axes.text(0, y, folder, ha="center", va="center", fontsize=11)
    for folder, targets in nearest(edges).items():
        for target in targets:
            gap = height[folder] - height[target]
            right = gap % 2 == 0
            x = 0.0 if gap == 1 else (0.55 if right else -0.55)
            bend = 0.0 if gap == 1 else (-0.35 if right else 0.35)
            arrow = FancyArrowPatch(
                (x, height[folder] - (0.3 if gap == 1 else 0)), (x, height[target] + (0.3 if gap == 1 else 0)),
                connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=0,
                color="#44597a", lw=1.1,
            )  # fmt: skip
            axes.add_patch(arrow)
    axes.set_xlim(-2.4, 2.4)
    axes.set_ylim(-0.8, len(FOLDERS) - 0.2)
    axes.axis("off")
    axes.set_title("Folders of the library; an arrow points to what a folder imports", fontsize=11)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)


def contributing(edges: dict[str, set[str]]) -> str:
    """CONTRIBUTING.md with its list of imports as it is now."""
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    block = f"![Which folder imports which](docs/images/imports.png)\n\n```\n{listing(edges)}\n```"
    marks = "<!-- imports:begin -->", "<!-- imports:end -->"
    return re.sub(f"{marks[0]}.*?{marks[1]}", lambda _: f"{marks[0]}\n{block}\n{marks[1]}", text, flags=re.DOTALL)


if __name__ == "__main__":
    found = graph()
    print(listing(found))
    for fault in wrong_way(found):
        print(f"wrong way: {fault}", file=sys.stderr)
    if "--draw" in sys.argv:
        draw(found, PROJECT / "docs" / "images" / "imports.png")
        (PROJECT / "CONTRIBUTING.md").write_text(contributing(found), encoding="utf-8")
    sys.exit(bool(wrong_way(found)))
