"""Incremental detokenization: the text that can be shown after each new token."""

from collections.abc import Sequence

from mapformers.lm.tokenizer import Tokenizer

UNFINISHED = "\ufffd"  # what an incomplete UTF-8 sequence is decoded to


class StreamingDetokenizer:
    """The text of tokens that come one after another.

    A token may end inside a character, so text is held back until the character is complete. Some tokenizers write a
    token differently at the beginning of a text, so each is decoded behind those that were shown just before.
    """

    def __init__(self, tokenizer: Tokenizer, shown: Sequence[int] = ()):
        """``shown``: tokens whose text is there already, such as a prompt's."""
        self._tokenizer = tokenizer
        self._ids = list(shown)
        self._begin, self._shown = 0, len(self._ids)

    def add(self, token: int) -> str:
        """The text that this token completes; empty while a character is not complete."""
        self._ids.append(token)
        return self._show(even_if_unfinished=False)

    def rest(self) -> str:
        """What is held back when nothing more comes."""
        return self._show(even_if_unfinished=True)

    def _show(self, even_if_unfinished: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._begin : self._shown])
        now = self._tokenizer.decode(self._ids[self._begin :])
        if now.endswith(UNFINISHED) and not even_if_unfinished:
            return ""
        self._begin, self._shown = self._shown, len(self._ids)
        return now[len(before) :]
