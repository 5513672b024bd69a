"""Timing calls on a CUDA device, by events on the current stream.

To remove launch latency, a spinning kernel blocks the stream until everything is queued behind it, like
nvbench's blocking kernel; a sample counts only if the spinning outlasted the queueing.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fathom.referee.child.guards import now, sleep, unpredictable
from fathom.referee.child.values import Call, is_tensor, leaves, torch
from fathom.referee.protocol import SampleTimes
from fathom.units import NS_PER_MS

SPIN_S = 2e-3  # at first; doubled until it outlasts the queueing
MOST_SPIN_S = 0.5
CLOCK_HZ = 2e9  # about the highest clock of a multiprocessor, so that the spin is never too short
FLUSH = 2  # L2 caches' worth of bytes written between cold calls
WRITER = 64 * 2**20
PAGE = 2 * 2**20  # bytes of a page of the driver
SPACERS, SPACER, LARGEST_SPACER = 24, 16 * PAGE, 128 * PAGE
SMALL_SPACERS, SMALL, LEAST = 48, 2**20 - 512, 512  # the allocator serves up to 1 MiB from separate blocks
SHARE = 16  # at most 1/SHARE of the free memory is reserved, because other proofs may use the device
BESIDE = 64 * 2**20  # larger free blocks would be reused again and again
# Sizes in bytes, down to the rounding of allocations; those above 1 MiB come from a separate pool.
POISON = [*(2**power for power in range(28, 20, -1)), 2**20 + 512, *(2**power for power in range(20, 8, -1))]


class Cuda:
    """One device and its current stream."""

    device = "cuda"

    def __init__(self) -> None:
        lib = torch()
        self.lib: Any = lib
        self.event, self.synchronize, self.spin = lib.cuda.Event, lib.cuda.synchronize, lib.cuda._sleep
        self.record, self.elapsed = lib.cuda.Event.record, lib.cuda.Event.elapsed_time
        size = FLUSH * (int(lib.cuda.get_device_properties(0).L2_cache_size) or WRITER)
        self.flusher = lib.empty(size, dtype=lib.uint8, device="cuda")
        self.spin_s = SPIN_S
        self.snapshot: list[Any] = []
        self.spacers: list[Any] = []
        self.block, self.reserved = 0, 0

    def run(
        self,
        target: Callable[..., Any],
        calls: Sequence[Call],
        *,
        repeat: int = 1,
        cold: bool = False,
        latency: str = "removed",
        refresh: Callable[[], None] = lambda: None,
    ) -> tuple[SampleTimes, list[Any]]:
        """Take one sample over all `calls`. Returns its times, and results in order.

        `refresh` rewrites the inputs first, so that L2 holds what fits, unless `cold` flushes L2.
        """
        while True:
            sample, results = self._once(target, calls, repeat, cold, latency == "removed", refresh)
            if sample["queued"] or latency == "included" or self.spin_s >= MOST_SPIN_S:
                return sample, results
            self.spin_s *= 2

    def _once(
        self,
        target: Callable[..., Any],
        calls: Sequence[Call],
        repeat: int,
        cold: bool,
        ahead: bool,
        refresh: Callable[[], None],
    ) -> tuple[SampleTimes, list[Any]]:
        begin, end = self.event(enable_timing=True), self.event(enable_timing=True)
        results: deque[Any] = deque(maxlen=len(calls))
        gc.disable()
        self.synchronize()
        refresh()
        if cold:
            self.flusher.zero_()
        if ahead:
            self.spin(int(self.spin_s * CLOCK_HZ))
        else:
            self.synchronize()
        host = now()
        self.record(begin)
        for _ in range(repeat):
            for args, kwargs in calls:
                results.append(target(*args, **kwargs))
        self.record(end)
        queued = ahead and not begin.query()
        self.snapshot = self._copies(results[-1])
        end.synchronize()
        host_ns = now() - host
        gc.enable()
        ns = NS_PER_MS * self.elapsed(begin, end)
        return {"ns": ns, "host_ns": host_ns, "queued": queued, "preempted": 0}, list(results)

    def late(self, result: Any) -> str | None:
        """Return a refusal's code if the result changed after the current stream had finished, else None."""
        self.synchronize()
        sleep(0.005)
        now_there = self._copies(result)
        self.synchronize()
        same = all(self._equal(a, b) for a, b in zip(self.snapshot, now_there, strict=True))
        return None if same else "side-stream"

    def early(self, target: Callable[..., Any], call: Call, fresh: Call) -> Any:
        """Return a call's result if inputs arrive late on its stream, so that unordered work reads NaN.

        `call` contains the buffers, `fresh` the values written into them after the stream has waited.
        """
        buffers = [leaf for _, leaf in leaves(call) if is_tensor(leaf) and leaf.is_cuda]
        values = [leaf for _, leaf in leaves(fresh) if is_tensor(leaf) and leaf.is_cuda]
        for buffer in buffers:
            buffer.data.fill_(float("nan") if buffer.is_floating_point() else 0)
        self.synchronize()
        self.spin(int(20 * SPIN_S * CLOCK_HZ))
        for buffer, value in zip(buffers, values, strict=True):
            buffer.data.copy_(value.data)
        result = target(*call[0], **call[1])
        self.synchronize()
        return result

    def poison(self) -> None:
        """Fill the allocator's free memory, and some more, with NaN to expose elements never written."""
        blocks = []
        for size in POISON:
            reserved = self.lib.cuda.memory_reserved()
            while True:
                block = self.lib.full((size // 4,), float("nan"), device="cuda")
                if self.lib.cuda.memory_reserved() > reserved:
                    break  # no free block of this size; the rest of this block serves the next size
                blocks.append(block)
        self.synchronize()

    def settle(self) -> None:
        """Wait until the device is idle."""
        self.synchronize()

    def release(self) -> None:
        """Release unused memory, because other proofs may use the device."""
        self.snapshot = []
        self.lib.cuda.empty_cache()

    def move(self, largest: int) -> None:
        """Make the next allocations use other pages. `largest` is the size of the largest input in bytes.

        The L2 slices and memory channels of a tensor's pages change the time of a memory-bound kernel by up
        to several percent, as does the position of a small tensor in its page. So tensors are allocated from
        reserved blocks, between spacers of random sizes, some of which are freed.
        """
        self.spacers, self.snapshot = [], []
        with suppress(self.lib.OutOfMemoryError):
            if not self.block or self.lib.cuda.memory_reserved() > self.reserved + BESIDE:
                self._reserve(SPACERS * min(max(2 * largest, SPACER), LARGEST_SPACER))
            for unit, most in [(PAGE, self.block // SPACERS)] * SPACERS + [(LEAST, SMALL)] * SMALL_SPACERS:
                self.spacers.append(self._bytes(unit + unit * int(unpredictable() * most / unit)))
        self.spacers = [spacer for spacer in self.spacers if unpredictable() < 0.5]

    def _bytes(self, size: int) -> Any:
        return self.lib.empty(size, dtype=self.lib.uint8, device="cuda")

    def _reserve(self, most: int) -> None:
        """Release all free memory; reserve one block of random size, and some blocks for small tensors."""
        self.release()
        free, _ = self.lib.cuda.mem_get_info()
        self.block = int(min(most, free // SHARE) * (1 + unpredictable()) / 2)
        reserved = [self._bytes(size) for size in (self.block, *[SMALL] * SMALL_SPACERS)]
        del reserved
        self.reserved = self.lib.cuda.memory_reserved()

    def _copies(self, result: Any) -> list[Any]:
        return [leaf.detach().clone() for _, leaf in leaves(result) if is_tensor(leaf)]

    def _equal(self, first: Any, other: Any) -> bool:
        flat = [t.contiguous().reshape(-1).view(self.lib.uint8) for t in (first, other)]
        return bool(self.lib.equal(*flat))
