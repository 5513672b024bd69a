"""Walk the frames of a thread by reading its process's memory while it runs."""

from __future__ import annotations

import os

from fathom.probe.frames import PAGE, FrameLayout, ProcessMemory

MOST_FRAMES = 512
INNERMOST = 24  # words of the innermost frame that are compared: its header, locals and stack
TAGS = ~3  # of pointers to code objects, as tagged by CPython 3.14

Chain = tuple[int, ...]  # code object, instruction, code object, instruction …: innermost first


class Walker:
    """Walks the frames of one process's threads. Reads whole pages, because a thread's frames share a few."""

    def __init__(self, memory: ProcessMemory, layout: FrameLayout) -> None:
        self._memory = memory
        self._current = layout.current
        self._code, self._previous, self._instruction = (
            offset // 8 for offset in (layout.code, layout.previous, layout.instruction)
        )
        self._size = 8 * (1 + max(self._code, self._previous, self._instruction))
        self.innermost = b""  # innermost frame's bytes at the last walk; they change as it runs

    def walk(self, state: int) -> Chain | None:
        """Return the chain of the thread whose state is at address `state`; None if torn or unreadable."""
        try:
            return self._chain(state)
        except (OSError, OverflowError):
            return None

    def _chain(self, frame: int) -> Chain | None:
        """Follow the frames from `frame`. Optimised as far as Python allows: it runs 1000 times a second."""
        memory = self._memory
        read, file, words, page, single = os.preadv, memory.file, memory.words, memory.page, memory.single
        code, previous, instruction, size = self._code, self._previous, self._instruction, self._size
        for offset in self._current:
            read(file, single, frame + offset)
            frame = words[0]
        chain: list[int] = []
        loaded = -1
        while frame:
            if frame & 7 or len(chain) > 2 * MOST_FRAMES:
                return None
            within = frame & (PAGE - 1)
            if within + size > PAGE:
                read(file, page, frame)
                loaded, place = -1, 0
            else:
                if frame - within != loaded:
                    loaded = frame - within
                    read(file, page, loaded)
                place = within >> 3
            if not chain:
                self.innermost = bytes(words[place : place + INNERMOST])
            chain += (words[place + code] & TAGS, words[place + instruction])
            frame = words[place + previous]
        return tuple(chain) if chain else None

    def gone(self, state: int) -> bool:
        """Return whether the thread's state can no longer be read, because its process has ended."""
        return not self._memory.load(state, 8)
