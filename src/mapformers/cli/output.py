"""What a command prints for programs: one JSON document on standard output, and nothing else there."""

import json
import math
from typing import Any


def print_json(data: Any) -> None:
    """Print plain data as JSON; a number that JSON does not have (NaN, infinity) is null."""
    print(json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
