"""Allocator peaks and the snapshot of one step, on a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fathom.pristine import os, time
from fathom.probe.device import device_in_use
from fathom.probe.reporter import Reporter

MOST_EVENTS = 200_000
MOST_TENSORS = 50_000
MOST_ON_HOST = 300  # parameters, whose gradients are freed: torch warns of every thousandth free
PARAMETER, GRADIENT, STATE = "parameter", "gradient", "optimizer state"


def peaks(cuda: Any) -> list[dict[str, object]]:
    """Return one `memory` record per device with allocations, without resetting the allocator's counters."""
    if cuda is None or not cuda.is_initialized():
        return []
    return [record for device in range(cuda.device_count()) if (record := _peak(cuda, device))]


def _peak(cuda: Any, device: int) -> dict[str, object] | None:
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

    def end(self) -> dict[str, object]:
        """Return the `snapshot` record and stop the history."""
        traces = self._memory._snapshot(self._device)["device_traces"]
        self._memory._record_memory_history(None)
        of_device = traces[self._device] if self._device < len(traces) else []
        # Time in ns, action, size: the fields for a row of the `memory` table.
        events = [[int(e.get("time_us", 0)) * 1000, e["action"], e["size"]] for e in of_device]
        return {"t": "snapshot", "device": self._device, "events": events}


class Holds:
    """The tensors that optimizers hold: the addresses and sizes of parameters, gradients and their own state.

    Allocations of a step that are still held at its end are then known by what holds them.
    """

    def __init__(self, session: Reporter) -> None:
        self._session = session

    @classmethod
    def possible(cls, session: Reporter) -> Holds | None:
        """Return this reader; None if recording allocations would add lines to the program's output."""
        on_host = 0
        with suppress(Exception):  # parameters of other frameworks
            for optimizer in list(session.optimizers):
                for group in optimizer.param_groups:
                    on_host += sum(parameter.device.type == "cpu" for parameter in group["params"])
        return cls(session) if on_host <= MOST_ON_HOST and hasattr(os, "memfd_create") else None

    def say(self, moment: str) -> None:
        """Report all tensors that are held now, at the beginning or the end of the step."""
        rows: dict[int, tuple[int, int, int, str]] = {}
        for optimizer in list(self._session.optimizers):
            with suppress(Exception):  # an optimizer may keep anything as its state
                for tensor, category in _held_by(optimizer):
                    with suppress(Exception):  # tensors without storage, as of other frameworks
                        row = _stored(tensor, category)
                        rows.setdefault(row[0], row)
                    if len(rows) >= MOST_TENSORS:
                        return
        if rows:
            record = {"t": "held", "ns": time.time_ns(), "moment": moment, "tensors": list(rows.values())}
            self._session.say(record)


def _held_by(optimizer: Any) -> Iterator[tuple[Any, str]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield parameter, PARAMETER
            if parameter.grad is not None:
                yield parameter.grad, GRADIENT
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            if hasattr(value, "untyped_storage"):
                yield value, STATE


def _stored(tensor: Any, category: str) -> tuple[int, int, int, str]:
    """Return address, bytes, device (-1: the host) and category of a tensor's storage."""
    local = getattr(tensor, "_local_tensor", tensor)  # of a distributed tensor
    storage = local.untyped_storage()
    device = local.device.index if local.device.type == "cuda" else -1
    return storage.data_ptr(), storage.nbytes(), device, category


def _history_is_on(torch: Any) -> bool:
    enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(enabled()) if enabled is not None else False
