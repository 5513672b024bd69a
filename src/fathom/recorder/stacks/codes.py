"""Walk the frames of a thread in another process's memory, and read their function, file and line."""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fathom.probe.frames import PAGE, FrameLayout, ProcessMemory

MOST_TEXT = 4096
MOST_TABLE = 1 << 20
SHIM = "<interpreter trampoline>"

Frame = tuple[str, str, int]  # function, file, line
MOST_FRAMES = 512
INNERMOST = 24  # words of the innermost frame that are compared: its header, locals and stack
TAGS = ~3  # of pointers to code objects, as tagged by CPython 3.14
Chain = tuple[int, ...]  # code object, instruction, code object, instruction …: innermost first


class TornError(Exception):
    """The memory at this address is not, or no longer, a code object."""


@dataclass
class Code:
    """One code object. `starts` are byte offsets at which `lines` begin."""

    fields: tuple[int, ...]  # as read from memory, to detect another object at the same address
    function: str
    file: str
    size: int
    starts: list[int]
    lines: list[int | None]

    def line(self, offset: int) -> int:
        """Return the line of the instruction at a byte offset, or the first line before any instruction."""
        at = bisect.bisect_right(self.starts, max(offset, 0)) - 1
        while at >= 0 and self.lines[at] is None:
            at -= 1
        return self.lines[at] or 0 if at >= 0 else 0


class Codes:
    """Caches the code objects of one process. Addresses are reused, so each use compares the fields."""

    def __init__(self, memory: ProcessMemory, layout: FrameLayout) -> None:
        self._memory, self._layout = memory, layout
        self._known: dict[int, Code] = {}

    def frame(self, code: int, instruction: int) -> Frame | None:
        """Return the frame of an instruction; None for the interpreter's own code between C and Python.

        Raises TornError, or OSError if memory cannot be read.
        """
        if code == self._layout.nothing:
            return None
        known = self._read(code)
        offset = instruction - code - self._layout.bytecode
        if not -8 <= offset < known.size:
            raise TornError
        return None if known.function == SHIM else (known.function, known.file, known.line(offset))

    def _read(self, address: int) -> Code:
        layout = self._layout
        try:
            data = self._memory.read(address, layout.bytecode)
        except OSError:  # the process has ended
            if address in self._known:
                return self._known[address]
            raise
        name, file, table = (_word(data, at) for at in (layout.name, layout.filename, layout.table))
        (first,) = struct.unpack_from("<i", data, layout.first_line)
        if _word(data, 8) != layout.code_type:
            raise TornError
        fields = (name, file, table, first)
        known = self._known.get(address)
        if known is None or known.fields != fields:
            starts, lines, size = line_table(self._bytes(table), first)
            known = Code(fields, self._text(name), self._text(file), size, starts, lines)
            self._known[address] = known
        return known

    def _text(self, address: int) -> str:
        layout = self._layout
        header = self._memory.read(address, layout.kind + 8)
        length, kind = _word(header, layout.length), header[layout.kind] & layout.kind_mask
        for value, encoding, offset in layout.encodings:
            if value == kind and length <= MOST_TEXT:
                width = {"utf-16-le": 2, "utf-32-le": 4}.get(encoding, 1)
                return self._memory.read(address + offset, length * width).decode(encoding)
        raise TornError

    def _bytes(self, address: int) -> bytes:
        length = _word(self._memory.read(address, self._layout.length + 8), self._layout.length)
        if length > MOST_TABLE:
            raise TornError
        return self._memory.read(address + self._layout.data, length)


def _word(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 8], "little")


def line_table(table: bytes, first: int) -> tuple[list[int], list[int | None], int]:
    """Decode a location table (PEP 657, CPython 3.11 and later).

    Returns the byte offsets at which entries begin, their lines (None for no line), and the size of the code.
    """
    starts: list[int] = []
    lines: list[int | None] = []
    offset, line = 0, first
    for kind, units, numbers in _entries(table):
        if kind in (13, 14):
            number = numbers[0]
            line += -(number >> 1) if number & 1 else number >> 1
        elif kind in (10, 11, 12):
            line += kind - 10
        starts.append(offset)
        lines.append(None if kind == 15 else line)
        offset += 2 * units
    return starts, lines, offset


def _entries(table: bytes) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (kind, code units, arguments) of each entry. An entry's first byte has its highest bit set."""
    starts = [i for i, byte in enumerate(table) if byte & 128]
    for start, end in zip(starts, [*starts[1:], len(table)], strict=True):
        yield (table[start] >> 3) & 15, (table[start] & 7) + 1, list(_numbers(table[start + 1 : end]))


def _numbers(data: bytes) -> Iterator[int]:
    """Decode little-endian numbers with six bits per byte; bit 6 marks continuation."""
    value = shift = 0
    for byte in data:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            yield value
            value = shift = 0


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

    def glance(self, state: int) -> bytes:
        """Return the bytes of the thread's innermost frame; b"" if they cannot be read."""
        memory, frame = self._memory, state
        try:
            for offset in self._current:
                os.preadv(memory.file, memory.single, frame + offset)
                frame = memory.words[0]
            os.preadv(memory.file, memory.page, frame)
        except (OSError, OverflowError):
            return b""
        return bytes(memory.words[:INNERMOST])

    def gone(self, state: int) -> bool:
        """Return whether the thread's state can no longer be read, because its process has ended."""
        return not self._memory.load(state, 8)
