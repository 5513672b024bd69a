"""Allocator peaks and the snapshot of one step, on a CUDA device."""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.device import device_in_use
from fathom.probe.reporter import Reporter

MOST_EVENTS = 200_000


def peaks(cuda: Any) -> list[dict[str, Any]]:
    """Return one `memory` record per device with allocations, without resetting the allocator's counters."""
    if cuda is None or not cuda.is_initialized():
        return []
    return [record for device in range(cuda.device_count()) if (record := _peak(cuda, device))]


def _peak(cuda: Any, device: int) -> dict[str, Any] | None:
    stats = cuda.memory_stats(device)
    if not stats.get("reserved_bytes.all.peak"):
        return None
    return {
        "t": "memory",
        "ns": time.time_ns(),
        "device": device,
        "allocated": stats["allocated_bytes.all.current"],
        "reserved": stats["reserved_bytes.all.current"],
        "peak_allocated": stats["allocated_bytes.all.peak"],
        "peak_reserved": stats["reserved_bytes.all.peak"],
        "retries": stats.get("num_alloc_retries", 0),
        "ooms": stats.get("num_ooms", 0),
    }


class AllocatorSnapshot:
    """The allocator's events of one step."""

    def __init__(self, memory: Any, device: int) -> None:
        self._memory, self._device = memory, device

    @classmethod
    def possible(cls, session: Reporter) -> AllocatorSnapshot | None:
        """Return a snapshot for the device in use; None, with a note, if the program records its own."""
        cuda = session.torch.cuda
        if not cuda.is_initialized():
            return None
        if _history_is_on(session.torch):
            session.note("memory", "the program records the allocator's history itself")
            return None
        return cls(cuda.memory, device_in_use(cuda))

    def begin(self) -> None:
        """Start the allocator's history, without stacks."""
        self._memory._record_memory_history("all", context=None, stacks="python", max_entries=MOST_EVENTS)

    def end(self) -> dict[str, Any]:
        """Return the `snapshot` record and stop the history."""
        traces = self._memory._snapshot(self._device)["device_traces"]
        self._memory._record_memory_history(None)
        of_device = traces[self._device] if self._device < len(traces) else []
        # Time in ns, action, size: the fields for a row of the `memory` table.
        events = [[int(e.get("time_us", 0)) * 1000, e["action"], e["size"]] for e in of_device]
        return {"t": "snapshot", "device": self._device, "events": events}


def _history_is_on(torch: Any) -> bool:
    enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(enabled()) if enabled is not None else False
