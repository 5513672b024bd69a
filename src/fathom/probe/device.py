"""Which device this process computes on."""

from __future__ import annotations

from typing import Any


def device_in_use(cuda: Any) -> int:
    """The one that holds most of what torch allocated here; the current one where none holds anything.

    A rank that names its device in every call, and never sets it, has another current one: device 0.
    """
    if not cuda.is_initialized():
        return 0
    current = int(cuda.current_device())
    held = {device: cuda.memory_allocated(device) for device in range(cuda.device_count())}
    best = max(held, key=lambda device: held[device], default=current)
    return best if held.get(best, 0) > held.get(current, 0) else current
