"""What is derived from signatures and docstrings is up to date: the types of `mf.layers`, and docs/api.md."""

import inspect
import sys
from pathlib import Path

import mapformers as mf
from mapformers.modules.layer import LAYERS

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

import api


def test_types_and_page_are_those_of_the_code():
    assert api.STUBS.read_text() == api.stubs(), "run `python scripts/api.py`"
    assert api.PAGE.read_text() == api.page(), "run `python scripts/api.py`"


def test_every_argument_of_every_layer_has_a_sentence():
    for name in LAYERS:
        for parameter, doc in api.arguments(LAYERS[name].layer):
            assert doc.endswith((".", "?")) or doc[0].isupper(), (name, parameter.name)


def test_every_public_name_has_a_docstring():
    for name in mf.__all__:
        found = getattr(mf, name)
        assert name == "__version__" or inspect.getdoc(found), name
