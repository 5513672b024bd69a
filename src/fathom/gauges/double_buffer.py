"""Copy pageable memory with all host threads through two page-locked buffers (double buffering)."""

from __future__ import annotations

from typing import Any

CHUNK = 16 << 20  # bytes: one buffer is filled while the link drains the other


class DoubleBuffer:
    """Copies the bytes of `source` to `to`, one of them in pageable memory; returns when done."""

    def __init__(self, torch: Any, to: Any, source: Any) -> None:
        self._buffers = [torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._moved = [torch.cuda.Event() for _ in range(2)]
        self._parts = list(zip(to.split(CHUNK), source.split(CHUNK), strict=True))

    def to_device(self) -> None:
        for number, (there, here) in enumerate(self._parts):
            buffer, moved = self._turn(number, here)
            moved.synchronize()
            buffer.copy_(here)
            there.copy_(buffer, non_blocking=True)
            moved.record()
        self._moved[(len(self._parts) - 1) % 2].synchronize()

    def to_host(self) -> None:
        for number, (_, there) in enumerate(self._parts):
            self._fetch(number, there)
            if number:
                self._store(number - 1)
        self._store(len(self._parts) - 1)

    def _fetch(self, number: int, there: Any) -> None:
        buffer, moved = self._turn(number, there)
        buffer.copy_(there, non_blocking=True)
        moved.record()

    def _store(self, number: int) -> None:
        here, _ = self._parts[number]
        buffer, moved = self._turn(number, here)
        moved.synchronize()
        here.copy_(buffer)

    def _turn(self, number: int, part: Any) -> tuple[Any, Any]:
        return self._buffers[number % 2][: len(part)], self._moved[number % 2]
