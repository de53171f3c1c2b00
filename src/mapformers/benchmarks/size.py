"""How large a model and a batch are timed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """A model and batch to time."""

    name: str
    n_layers: int
    d_model: int
    n_heads: int
    batch_size: int
    length: int
    vocab_size: int = 21
    repeats: int = 20
    rows: tuple[str, ...] = ()
    """Layers that are timed at this size (all unless given)."""
    preset: str | None = None
    """A preset of `mapformers lm train` whose settings our models have, as far as each has them."""

    @property
    def title(self) -> str:
        layers = "1 layer" if self.n_layers == 1 else f"{self.n_layers} layers"
        heads = "1 head" if self.n_heads == 1 else f"{self.n_heads} heads"
        preset = f", preset {self.preset}" if self.preset else ""
        return f"{self.name}: {layers} of {self.d_model}, {heads}, batch {self.batch_size} x {self.length}{preset}"
