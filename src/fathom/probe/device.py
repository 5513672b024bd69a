"""The device on which this process computes."""

from __future__ import annotations

from typing import Any


def device_in_use(cuda: Any) -> int:
    """Return the device with most of torch's allocations in this process, or the current one without any.

    The current device is 0 in a rank that names its device in every call but never sets it.
    """
    if not cuda.is_initialized():
        return 0
    current = int(cuda.current_device())
    allocated = {device: cuda.memory_allocated(device) for device in range(cuda.device_count())}
    best = max(allocated, key=lambda device: allocated[device], default=current)
    return best if allocated.get(best, 0) > allocated.get(current, 0) else current
