"""The types of `mf.layers` are those of the code, and the API page has every public name."""

import inspect
import operator
import re
import sys
from pathlib import Path

import mapformers as mf
from mapformers.modules.layer import LAYERS

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

import layer_types


def test_types_are_those_of_the_code():
    assert layer_types.STUBS.read_text() == layer_types.stubs(), "run `python scripts/layer_types.py`"


def test_the_api_page_has_every_public_name_and_every_layer():
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    listed = re.findall(r"^::: mapformers\.(\S+)$", page, flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    for name in listed:
        found = operator.attrgetter(name)(mf)
        assert inspect.getdoc(found), name
    rooms = {name for name in mf.__all__ if inspect.ismodule(getattr(mf, name))}
    assert set(mf.__all__) - rooms - {"__version__"} <= set(listed)
    assert {f"layers.{LAYERS[name].layer.__name__}" for name in LAYERS} <= set(listed)


def test_every_argument_of_every_layer_has_a_sentence():
    for name in LAYERS:
        for parameter, doc in layer_types.arguments(LAYERS[name].layer):
            assert doc.endswith((".", "?")) or doc[0].isupper(), (name, parameter.name)


def test_every_public_name_has_a_docstring():
    for name in mf.__all__:
        found = getattr(mf, name)
        assert name == "__version__" or inspect.getdoc(found), name
