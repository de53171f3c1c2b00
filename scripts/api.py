"""Write what is derived from signatures and docstrings: the types of `mf.layers`, and docs/api.md.

  python scripts/api.py

A layer's arguments are written down once, as the fields of its options; editors and type checkers read them from
`layers/__init__.pyi`, people from docs/api.md.
"""

import ast
import inspect
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mapformers as mf
from mapformers.layers.tape import TAPE
from mapformers.modules.layer import LAYERS
from mapformers.modules.mixer import Mixer

PROJECT = Path(__file__).parent.parent
STUBS, PAGE = PROJECT / "src" / "mapformers" / "layers" / "__init__.pyi", PROJECT / "docs" / "api.md"
COMMON = {
    "d_model": "Width of the activations.",
    "n_heads": "Heads, each with a map or a state of its own.",
    "head_dim": "Size of a head (None: d_model / n_heads).",
    "n_layers": "How many layers add to the same residual stream: what is added starts smaller the more there are.",
    "causal": "False: a token also sees later ones, where the layer can.",
    "mlp_ratio": "Width of the MLP over d_model.",
    "last": "Whether no TAPE layer follows: then no update is built, since nothing would read it.",
}
FUNCTIONS = (
    "build_model", "build_task", "evaluate", "train", "resume", "load", "reproduce", "list_models", "list_tasks",
    "list_recipes", "import_plugins", "RunConfig.compose", "training.zero_mean_movement", "training.build_optimizer",
    "training.set_learning_rate", "evaluation.evaluate_grid", "evaluation.player_scores", "players.names",
    "players.build", "lm.prepare", "analysis.token_movements", "analysis.walked_path", "analysis.align",
)  # fmt: skip
CLASSES = ("Decoder", "Task", "Batch", "Metric", "Run", "RunConfig", "lm.Corpus", "lm.TokenText", "UserError")


def field_docs(options: type) -> dict[str, str]:
    """Field -> the docstring below it, those of base classes included."""
    found: dict[str, str] = {}
    for cls in reversed(options.__mro__[:-1]):
        (body,) = (n.body for n in ast.walk(ast.parse(inspect.getsource(cls))) if isinstance(n, ast.ClassDef))
        for field, doc in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(doc.value.value).split())
    return found


def arguments(layer: type) -> Iterator[tuple[inspect.Parameter, str]]:
    """The arguments of a layer's constructor with a sentence on each."""
    parameters = list(inspect.signature(layer).parameters.values())
    docs = COMMON | field_docs(layer.Options)  # type: ignore[attr-defined]
    for parameter in parameters:
        yield parameter, docs[parameter.name]


def spell(annotation: Any) -> str:
    """An annotation as source."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("mapformers.modules.context.", "")


def value(default: Any) -> str:
    return "2 * math.pi" if default == 2 * math.pi else repr(default)


def stub(layer: type) -> str:
    lines = [f"class {layer.__name__}({'nn.Module' if layer is TAPE else 'Mixer'}):"]
    docs = inspect.cleandoc(layer.__doc__ or "") + "\n\nArgs:\n"
    docs += "\n".join(f"    {p.name}: {doc}" for p, doc in arguments(layer))
    lines.append(textwrap.indent(f'"""{docs}\n"""', "    "))
    lines.append("    def __init__(\n        self,")
    starred = False
    for parameter, _ in arguments(layer):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            lines.append("        *,")
            starred = True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {value(parameter.default)}"
        lines.append(f"        {parameter.name}: {spell(parameter.annotation)}{default},")
    lines.append("    ) -> None: ...")
    if layer is not TAPE:
        lines.append("    def mix(self, x: Tensor, state: Any, context: Context) -> tuple[Tensor, Any]: ...")
        lines.append("    def reference(self, x: Tensor, context: Context) -> Tensor: ...")
    else:
        lines.append("    def forward(self, x: Tensor, **settings: Any) -> Any: ...")
    return "\n".join(lines)


def stubs() -> str:
    head = [
        "# Written by scripts/api.py from the options of every layer; change those, then run it again.",
        "import math",
        "from typing import Any, Literal",
        "",
        "from torch import Tensor, nn",
        "",
        "from mapformers.modules.context import Context",
        "from mapformers.modules.mixer import Mixer",
        "",
        "def classes() -> dict[str, type]: ...",
        "",
    ]
    return "\n".join(head) + "\n" + "\n\n".join(stub(LAYERS[name].layer) for name in LAYERS) + "\n"


def find(name: str) -> Any:
    found: Any = mf
    for part in name.split("."):
        found = getattr(found, part)
    return found


def documented(name: str, what: Callable[..., Any]) -> str:
    doc = re.sub(r":(func|class|meth|attr):", "", inspect.cleandoc(what.__doc__ or ""))
    paragraphs = [
        f"```pycon\n{part}\n```" if part.startswith(">>>") else part.replace("``", "`") for part in doc.split("\n\n")
    ]
    signature = "" if inspect.isclass(what) else str(inspect.signature(what))
    signature = re.sub(
        r"\b(?:collections\.abc|typing|torch|pathlib|rich\.console|mapformers(?:\.\w+)*)\.(?=\w)", "", signature
    )
    short = textwrap.fill(f"mf.{name}{signature}", 110, subsequent_indent="    ", break_long_words=False)
    return f"### `mf.{name}`\n\n```text\n{short}\n```\n\n" + "\n\n".join(paragraphs) + "\n"


def layer_section(name: str) -> str:
    layer = LAYERS[name].layer
    rows = [
        f"| `{p.name}` | `{spell(p.annotation)}` | {'' if p.default is p.empty else f'`{value(p.default)}`'} | {doc} |"
        for p, doc in arguments(layer)
        if p.name not in COMMON or p.name in ("mlp_ratio", "last")
    ]
    table = "\n".join(
        ["| option | type | default | |", "|---|---|---|---|", *(row.replace(" | None", r" \| None") for row in rows)]
    )
    ways = "Reads both ways with `causal=False`." if getattr(layer, "reads_both_ways", False) else ""
    summary = LAYERS.summary(name)
    return f"### `mf.layers.{layer.__name__}` (`{name}`)\n\n{summary[0].upper()}{summary[1:]} {ways}\n\n{table}\n"


def page() -> str:
    shared = "\n".join(
        f"- `{name}`: {COMMON[name]}" for name in ("d_model", "n_heads", "head_dim", "n_layers", "causal")
    )
    call = inspect.cleandoc(Mixer.forward.__doc__ or "")
    return "\n".join(
        [
            "# API",
            "",
            "Written by `python scripts/api.py` from signatures and docstrings. `import mapformers as mf`.",
            "",
            "## Functions",
            "",
            *(documented(name, find(name)) for name in FUNCTIONS),
            "## Classes",
            "",
            *(documented(name, find(name)) for name in CLASSES),
            "## Layers",
            "",
            "Every layer maps activations (B, L, d_model) to activations (B, L, d_model) and takes",
            "",
            shared,
            "",
            "and options of its own, listed below. It is called as `layer(x, state=…, reset=…, padding_mask=…,",
            "return_state=…)`:",
            "",
            "```text",
            call,
            "```",
            "",
            *(layer_section(name) for name in LAYERS),
        ]
    )


if __name__ == "__main__":
    STUBS.write_text(stubs(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {STUBS.relative_to(PROJECT)} and {PAGE.relative_to(PROJECT)}")
