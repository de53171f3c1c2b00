"""Language: text from anywhere, turned into token shards once (`mapformers lm prepare`), and the task that reads them.

source → documents → tokenizer → shards and manifest → `Corpus` → windows of the task `text`.
"""

from mapformers.lm.corpus import Corpus, TokenText
from mapformers.lm.preparation import PrepareSettings, prepare
from mapformers.lm.presets import preset
from mapformers.lm.tokenizer import Tokenizer

__all__ = ["Corpus", "PrepareSettings", "TokenText", "Tokenizer", "prepare", "preset"]
