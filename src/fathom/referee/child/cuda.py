"""Timing calls on a CUDA device, by events on the current stream.

With the launch latency removed, a kernel that spins holds the stream back until everything is queued behind
it, as nvbench's blocking kernel does; a sample counts only if the spinning outlasted the queueing.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fathom.referee.child.guards import now, sleep, unpredictable
from fathom.referee.child.values import is_tensor, leaves, torch
from fathom.units import NS_PER_MS

Call = tuple[tuple[Any, ...], dict[str, Any]]
SPIN_S = 2e-3  # at first; doubled until it outlasts the queueing
MOST_SPIN_S = 0.5
CLOCK_HZ = 2e9  # about the fastest clock of a multiprocessor: the spin lasts at least as long as asked
FLUSH = 2  # times the L2 cache is written between cold calls
WRITER = 64 * 2**20
PAGE = 2 * 2**20  # the driver places memory by pages of that many bytes
SPACERS, SPACER, LARGEST_SPACER = 24, 16 * PAGE, 128 * PAGE
SMALL_SPACERS, SMALL, LEAST = 48, 2**20 - 512, 512  # up to 1 MiB the allocator takes from blocks apart
SHARE = 16  # of the free memory is held at most: others may prove something else on the same device
BESIDE = 64 * 2**20  # what lies beside that block and is larger would be found again and again
# Bytes, down to what an allocation is rounded to; those above 1 MiB come from a pool of their own.
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
    ) -> tuple[dict[str, Any], list[Any]]:
        """One sample over all `calls`: `{"ns", "host_ns", "queued"}`, and their results in order.

        `refresh` writes the inputs once more just before: they are in L2 as far as they fit, unless `cold`
        has it overwritten. `queued` is False where the host could not keep ahead of the device.
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
    ) -> tuple[dict[str, Any], list[Any]]:
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
        """The reason if the latest result changed after its end on the current stream: work elsewhere."""
        self.synchronize()
        sleep(0.005)
        now_there = self._copies(result)
        self.synchronize()
        same = all(self._equal(a, b) for a, b in zip(self.snapshot, now_there, strict=True))
        return None if same else "side-stream"

    def early(self, target: Callable[..., Any], call: Call, fresh: Call) -> Any:
        """The result of a call whose inputs arrive late on its stream: unordered work elsewhere reads NaN.

        `call` holds the buffers; `fresh` the values that they get once the stream has spun for a while.
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
        """Fill what the allocator holds free, and some more, with NaN: what is not written shows."""
        held = []
        for size in POISON:
            reserved = self.lib.cuda.memory_reserved()
            while True:
                block = self.lib.full((size // 4,), float("nan"), device="cuda")
                if self.lib.cuda.memory_reserved() > reserved:
                    break  # nothing of this size was free; the rest of this block serves the next one
                held.append(block)
        self.synchronize()

    def settle(self) -> None:
        """Wait until the device is idle."""
        self.synchronize()

    def release(self) -> None:
        """Give back what is not used: others may prove something else on the same device."""
        self.snapshot = []
        self.lib.cuda.empty_cache()

    def move(self, largest: int) -> None:
        """Have what is allocated next lie on other pages; `largest`: bytes of the largest input.

        Which slices of L2 and channels of memory the pages of a tensor fall on changes the time of a kernel
        bound by memory by up to several percent, for as long as the tensor stays there; so does the place of
        a small one within its page. So all are cut from blocks that the allocator holds, around spacers of
        random sizes, some of which leave holes.
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
        """Give back all that is free, and let the allocator hold one block instead, of a random size, and
        some of those that it cuts small tensors from."""
        self.release()
        free, _ = self.lib.cuda.mem_get_info()
        self.block = int(min(most, free // SHARE) * (1 + unpredictable()) / 2)
        held = [self._bytes(size) for size in (self.block, *[SMALL] * SMALL_SPACERS)]
        del held
        self.reserved = self.lib.cuda.memory_reserved()

    def _copies(self, result: Any) -> list[Any]:
        return [leaf.detach().clone() for _, leaf in leaves(result) if is_tensor(leaf)]

    def _equal(self, one: Any, other: Any) -> bool:
        flat = [t.contiguous().reshape(-1).view(self.lib.uint8) for t in (one, other)]
        return bool(self.lib.equal(*flat))
