"""List the longest lines, files and functions of the library: `python scripts/longest.py [--top 5]`.

A function counts from its first line to its last, decorators and docstring included. Of functions within functions only
the outer one is listed.
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src" / "mapformers"
Found = tuple[int, str]  # a length, and what has it


def functions(tree: ast.AST, path: str, within: str = "") -> Iterator[Found]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield (node.end_lineno or first) - first + 1, f"{path}:{node.lineno} {within}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, path, f"{node.name}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--top", type=int, default=5, help="how many of each")
    top = parser.parse_args().top
    found: dict[str, list[Found]] = {"characters in a line": [], "lines in a file": [], "lines in a function": []}
    for path in sorted(SOURCES.rglob("*.py")):
        name, text = path.relative_to(SOURCES).as_posix(), path.read_text(encoding="utf-8")
        lines = text.splitlines()
        found["characters in a line"] += [(len(line), f"{name}:{i}") for i, line in enumerate(lines, start=1)]
        found["lines in a file"].append((len(lines), name))
        found["lines in a function"] += functions(ast.parse(text), name)
    for title, lengths in found.items():
        print(title)
        for length, where in sorted(lengths, reverse=True)[:top]:
            print(f"  {length:4} {where}")


if __name__ == "__main__":
    main()
