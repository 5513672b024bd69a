"""The usual values of a Triton kernel's configuration."""

from __future__ import annotations

from typing import Any

WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
LEAST_BLOCK, AROUND = 16, (-2, -1, 0, 1, 2)  # powers of two beside the value in the file


def usual_values(name: str, value: Any) -> tuple[int, ...] | None:
    """Return the values to try for a constant of this name; None if it is not part of a configuration."""
    plain = name.lower().lstrip("_")
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if plain == "num_warps":
        return WARPS
    if plain == "num_stages":
        return STAGES
    if plain.startswith("block") and value > 0 and value & (value - 1) == 0:
        blocks = (value << power if power >= 0 else value >> -power for power in AROUND)
        return tuple(block for block in blocks if block >= min(LEAST_BLOCK, value))
    return None
