"""The tokenizer that a run keeps in its folder, so that its model can be used where the text is not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mapformers.errors import UserError, require
from mapformers.files import read_json
from mapformers.lm.corpus import Corpus, tokenizer_of
from mapformers.lm.tokenizer import Tokenizer

FACTS, CONTENT = "text.json", "tokenizer.json"


def files_of(corpus: Corpus) -> dict[str, str]:
    """What a run on this text keeps of it, by the name of the file."""
    facts = {"tokenizer": corpus.manifest.tokenizer, "data_checksum": corpus.manifest.checksum()}
    return {FACTS: json.dumps(facts, indent=1) + "\n", CONTENT: corpus.tokenizer.to_json()}


def kept_facts(folder: Path) -> Mapping[str, Any] | None:
    """Kind, size, separator and checksum of the tokenizer that a run keeps; None if it keeps none."""
    if not (folder / FACTS).is_file():
        return None
    try:
        found: Mapping[str, Any] = read_json(folder / FACTS)["tokenizer"]
        require({"kind", "vocab_size", "separator", "sha256"} <= set(found), "")
    except (UserError, LookupError, TypeError):
        raise UserError(
            f"{folder / FACTS} is damaged; remove it to use the text that the run was trained on."
        ) from None
    return found


def kept_tokenizer(folder: Path, facts: Mapping[str, Any]) -> Tokenizer:
    return tokenizer_of(folder, facts, f"remove {folder / FACTS} to use the text that the run was trained on")
