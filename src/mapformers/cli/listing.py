"""`mapformers list`: names of models, tasks and recipes, without loading any of them."""

import argparse
from collections.abc import Sequence

from mapformers.cli.output import print_json
from mapformers.errors import UserError, unknown
from mapformers.registry import LAYERS, RECIPES, TASKS

REGISTRIES = {"models": LAYERS, "tasks": TASKS, "recipes": RECIPES}


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("mapformers list", description="List models, tasks and recipes by name.")
    parser.add_argument("kind", nargs="?", help="models, tasks or recipes (all unless given)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    asked, rest = parser.parse_known_args(list(args))
    if rest:
        raise UserError(f"Unrecognized options: {' '.join(rest)}; see `mapformers list --help`.")
    if asked.kind is not None and asked.kind not in REGISTRIES:
        raise unknown("list", asked.kind, REGISTRIES)
    kinds = [asked.kind] if asked.kind else list(REGISTRIES)
    if asked.json:
        registries = {kind: REGISTRIES[kind] for kind in kinds}
        print_json({kind: [{"name": n, "summary": r.summary(n)} for n in r] for kind, r in registries.items()})
        return 0
    for kind in kinds:
        registry = REGISTRIES[kind]
        width = max(map(len, registry.names()))
        print(kind)
        for name in registry:
            print(f"  {name:<{width}}  {registry.summary(name)}")
        print()
    return 0
