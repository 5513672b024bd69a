"""Read code objects from another process's memory: function, file and lines."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from fathom.probe.frames import FrameLayout, ProcessMemory

MOST_TEXT = 4096
MOST_TABLE = 1 << 20
SHIM = "<interpreter trampoline>"

Frame = tuple[str, str, int]  # function, file, line


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

    Returns the byte offsets at which entries begin, their lines (None: no line), and the size of the code.
    """
    starts: list[int] = []
    lines: list[int | None] = []
    offset, line = 0, first
    for kind, units, numbers in _entries(table):
        if kind in (13, 14):
            line += _signed(numbers[0])
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


def _signed(number: int) -> int:
    return -(number >> 1) if number & 1 else number >> 1
