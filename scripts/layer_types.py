"""Write the types of `mf.layers`, which editors, type checkers and the API page read.

  python scripts/layer_types.py

A layer's arguments are written down once, as the fields of its options.
"""

import ast
import inspect
import itertools
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mapformers.layers.tape import TAPE
from mapformers.modules.layer import LAYERS

PROJECT = Path(__file__).parent.parent
STUBS = PROJECT / "src" / "mapformers" / "layers" / "__init__.pyi"
COMMON = {
    "d_model": "Width of the activations.",
    "n_heads": "Heads, each with a map or a state of its own.",
    "head_dim": "Size of a head (None: d_model / n_heads).",
    "n_layers": "How many layers add to the same residual stream: what is added starts smaller the more there are.",
    "causal": "False: a token also sees later ones, where the layer can.",
    "mlp_ratio": "Width of the MLP over d_model.",
    "last": "Whether no TAPE layer follows: then no update is built, since nothing would read it.",
}


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
        "# Written by scripts/layer_types.py from the options of every layer; change those, then run it again.",
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


if __name__ == "__main__":
    STUBS.write_text(stubs(), encoding="utf-8")
    print(f"wrote {STUBS.relative_to(PROJECT)}")
