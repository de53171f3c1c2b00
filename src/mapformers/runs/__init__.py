"""A run: its config and the one composer of it, its folder, checkpoints and provenance."""
