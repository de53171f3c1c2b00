"""A saved folder that names its package, so that others can load it: `trust_remote_code` reads the one-line module."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from mapformers.files import write_atomically
from mapformers.hf.card import model_card

MODULE = "modeling_mapformer"


class NamedByPackage:
    """Mixed into a config or a model: what is saved names this package, and holds no copy of its files."""

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "") -> None:
        """Does nothing: registering would make `save_pretrained` copy source files."""


class Package(NamedByPackage):
    """Mixed into a model: `save_pretrained` also writes a module of one line, and the config says what is in it.

    It also writes a model card, README.md, unless there is one; ``trained`` has what the card says of the training run.
    """

    auto_class: ClassVar[str]
    config: Any
    trained: Mapping[str, Any] | None = None

    def save_pretrained(self, save_directory: str | Path, *args: Any, **kwargs: Any) -> Any:
        config, model = type(self.config).__name__, type(self).__name__
        self.config.auto_map = {"AutoConfig": f"{MODULE}.{config}", self.auto_class: f"{MODULE}.{model}"}
        saved = super().save_pretrained(save_directory, *args, **kwargs)  # type: ignore[misc]
        line = f"from mapformers.hf import {config}, {model}  # pip install 'mapformers[hf]'\n"
        write_atomically(Path(save_directory) / f"{MODULE}.py", line.encode())
        card = Path(save_directory) / "README.md"
        if not card.exists():
            with_tokenizer = (Path(save_directory) / "tokenizer_config.json").exists()
            write_atomically(card, model_card(self.auto_class, self, self.trained, with_tokenizer).encode())
        return saved
