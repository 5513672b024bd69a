"""Find and verify the layout of this interpreter's frames and code objects, by searching its own memory.

No offset is hard-coded. Each is the location of a pointer that Python itself reports (`id(frame.f_code)`),
so the layout of an unusual build is either found or rejected.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

from fathom.pristine import os
from fathom.probe.frames.memory import ProcessMemory
from fathom.probe.threads import get_ident

OLDEST = (3, 11)
_WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # read now: it imports a module
TAGS = ~3  # pointers: 3.14 marks references in the lowest bits
_STATE_BYTES, _FRAME_BYTES = 1024, 96
_EACH = 6  # strings of each kind
_KINDS = (
    ("ascii", "fathom"),
    ("latin-1", "f\xe9th"),
    ("utf-16-le", "f\u20acth"),
    ("utf-32-le", "f\U0001f600th"),
)


class NoFramesError(Exception):
    """The frames of this interpreter cannot be read from outside; the message says why."""


@dataclass
class FrameLayout:
    """Byte offsets as JSON-able values."""

    current: list[int]  # pointers to follow from the thread state to the innermost frame
    code: int  # in a frame
    previous: int
    instruction: int
    name: int  # in a code object
    filename: int
    first_line: int
    table: int
    bytecode: int  # offset of its instructions
    code_type: int  # address of the type of code objects
    nothing: int  # address of None, the code of frames between C and Python
    length: int  # in a str or bytes object
    kind: int  # in a str object: the byte with its encoding
    kind_mask: int
    encodings: list[list[Any]]  # masked kind, encoding, offset of the data
    data: int  # in a bytes object


def calibrate() -> FrameLayout:
    """Return the layout of this interpreter. Raises NoFramesError if it cannot be determined."""
    if sys.implementation.name != "cpython" or sys.version_info < OLDEST:
        version = f"{sys.implementation.name} {sys.version.split()[0]}"
        raise NoFramesError(f"the frames of {version} cannot be read (CPython 3.11 or later is required)")
    if _WITHOUT_GIL or struct.calcsize("P") != 8 or sys.byteorder != "little":
        raise NoFramesError("the frames of a free-threaded, 32-bit or big-endian Python cannot be read")
    try:
        memory = ProcessMemory(os.getpid())
    except OSError as error:
        raise NoFramesError(f"Fathom cannot read the memory of processes here ({error.strerror})") from None
    try:
        layout = _search(memory)
        if not verified(memory, layout):
            raise NoFramesError("the frames read from memory differ from those that Python reports")
        return layout
    except OSError as error:
        raise NoFramesError(f"the interpreter's memory could not be searched ({error})") from None
    finally:
        memory.close()


def thread_state(ident: int | None = None) -> int:
    """Return the address of a thread's state, by default the calling thread's; 0 if not found."""
    api = ctypes.pythonapi
    api.PyThreadState_Get.restype = ctypes.c_void_p
    own = int(api.PyThreadState_Get())
    if ident is None or ident == get_ident():
        return own
    memory = ProcessMemory(os.getpid())
    place = _words(memory, own).index(get_ident())
    api.PyInterpreterState_Get.restype = api.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p
    api.PyThreadState_Next.restype = ctypes.c_void_p
    state = api.PyInterpreterState_ThreadHead(ctypes.c_void_p(api.PyInterpreterState_Get()))
    while state and _words(memory, state)[place] != ident:
        state = api.PyThreadState_Next(ctypes.c_void_p(state))
    memory.close()
    return int(state or 0)


def _words(memory: ProcessMemory, address: int, size: int = _STATE_BYTES) -> list[int]:
    """Return 64-bit words from `address`; fewer at the end of a page."""
    size = size if memory.load(address, size) else 4096 - address % 4096
    return list(memory.words[: size // 8]) if memory.load(address, size) else []


def _search(memory: ProcessMemory) -> FrameLayout:
    codes = _codes()
    strings = _strings(memory)
    sample = b"fathom reads its own memory"
    frames = _below(memory)
    return FrameLayout(
        current=_current(memory, frames["pointer"]),
        code=frames["code"],
        previous=frames["previous"],
        instruction=frames["instruction"],
        bytecode=frames["bytecode"],
        name=_field(memory, codes, lambda code: id(code.co_qualname)),
        filename=_field(memory, codes, lambda code: id(code.co_filename)),
        table=_field(memory, codes, lambda code: id(code.co_linetable)),
        first_line=_field(memory, codes, lambda code: code.co_firstlineno, "I"),
        code_type=id(CodeType),
        nothing=id(None),
        data=_place(memory.read(id(sample), sample.__sizeof__()), sample),
        **strings._asdict(),
    )


def _codes() -> list[CodeType]:
    """Return code objects that differ from each other in every field."""
    functions: list[Any] = [
        calibrate,
        _search,
        ProcessMemory.load,
        ProcessMemory.__init__,
        threading.Thread.join,
        os.fspath,
    ]
    functions += [os.walk, struct.Struct, sysconfig.get_paths, threading.Timer.run]
    return [function.__code__ for function in functions if hasattr(function, "__code__")]


def _field(
    memory: ProcessMemory, codes: list[CodeType], value: Callable[[CodeType], int], form: str = "Q"
) -> int:
    """Return the offset at which every code object holds its value."""
    step = struct.calcsize(form)
    places = []
    for code in codes:
        data = memory.read(id(code), min(code.__sizeof__(), 256))
        values = struct.unpack_from(f"<{len(data) // step}{form}", data)
        places.append({step * i for i, word in enumerate(values) if word == value(code)})
    return _only(set.intersection(*places), "code objects")


class _Strings(NamedTuple):
    length: int
    kind: int
    kind_mask: int
    encodings: list[list[Any]]


def _strings(memory: ProcessMemory) -> _Strings:
    """Find where a str keeps its length, encoding and data."""
    made = ["".join(list(text) * times) for _, text in _KINDS for times in range(2, 2 + _EACH)]
    data = [memory.read(id(text), text.__sizeof__()) for text in made]
    length = _only(_equal(data, [len(text) for text in made]), "the length of a str")
    place = _only(
        {i for i in range(16, 48) if _identifies_kind([sample[i] for sample in data])}, "the kind of a str"
    )
    kinds = [sample[place] for sample in data[::_EACH]]
    mask = 0
    for kind in kinds:
        mask |= kind ^ kinds[0]
    encodings = [
        [kinds[i] & mask, encoding, _place(data[i * _EACH], made[i * _EACH].encode(encoding))]
        for i, (encoding, _) in enumerate(_KINDS)
    ]
    return _Strings(length, place, mask, encodings)


def _identifies_kind(values: list[int]) -> bool:
    """Return whether a byte has one value for all strings of a kind, and other values for other kinds."""
    each = [set(values[i : i + _EACH]) for i in range(0, len(values), _EACH)]
    return all(len(kinds) == 1 for kinds in each) and len(set.union(*each)) == len(_KINDS)


def _equal(data: list[bytes], values: list[int]) -> set[int]:
    """Return the offsets at which the 64-bit word in `data[i]` is `values[i]`, for every i."""
    places = set(range(16, 48, 8))
    for sample, value in zip(data, values):  # noqa: B905 - Python 3.10
        places = {i for i in places if sample[i : i + 8] == struct.pack("<Q", value)}
    return places


def _below(memory: ProcessMemory, depth: int = 3) -> dict[str, int]:
    """Find offsets in frames, from this recursive function's frames and their callers'."""
    if depth:
        return _between(memory, depth - 1)
    frames = _chain(sys._getframe(), 6)
    pointer, code = _pointer(memory, frames)
    at = [memory.word(id(frame) + pointer) for frame in frames]
    words = [struct.unpack(f"<{_FRAME_BYTES // 8}Q", memory.read(address, _FRAME_BYTES)) for address in at]
    pairs = range(len(at) - 1)
    previous = {8 * i for i in range(len(words[0])) if all(words[j][i] == at[j + 1] for j in pairs)}
    instruction, bytecode = _instruction(words[1:], frames[1:])
    return {
        "pointer": pointer,
        "code": code,
        "previous": _only(previous, "the frame before"),
        "instruction": instruction,
        "bytecode": bytecode,
    }


def _between(memory: ProcessMemory, depth: int) -> dict[str, int]:
    """Call `_below` from another code object."""
    return _below(memory, depth)


def _chain(frame: FrameType | None, most: int) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None and len(frames) < most:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _pointer(memory: ProcessMemory, frames: list[FrameType]) -> tuple[int, int]:
    """Find the interpreter frame in a frame object, and the code in it."""
    places: set[tuple[int, int]] | None = None
    for frame in frames:
        here = set()
        for offset in range(16, 64, 8):
            try:
                data = memory.read(memory.word(id(frame) + offset), _FRAME_BYTES)
            except OSError:
                continue
            words = struct.unpack(f"<{_FRAME_BYTES // 8}Q", data)
            here |= {(offset, 8 * i) for i, word in enumerate(words) if word & TAGS == id(frame.f_code)}
        places = here if places is None else places & here
    if not places:
        raise NoFramesError("frames do not contain a pointer to their code")
    return min(places)


def _instruction(words: list[tuple[int, ...]], frames: list[FrameType]) -> tuple[int, int]:
    """Find the instruction pointer in a frame, and the first instruction in a code object."""
    for i in range(len(words[0])):
        bases = {word[i] - id(f.f_code) - f.f_lasti for word, f in zip(words, frames)}  # noqa: B905
        if len(bases) == 1 and 0 < (base := bases.pop()) < 1024:
            return 8 * i, base
    raise NoFramesError("frames do not contain a pointer to their instruction")


def _current(memory: ProcessMemory, pointer: int) -> list[int]:
    """Find the pointers from a thread's state to its innermost frame that work at several call depths."""
    state, ways = thread_state(), None
    for depth in range(3):
        here = _ways(memory, state, pointer, depth)
        ways = here if ways is None else [way for way in ways if way in here]
    if not ways:
        raise NoFramesError("the thread's state does not contain a pointer to its frame")
    return min(ways, key=len)


def _ways(memory: ProcessMemory, state: int, pointer: int, depth: int) -> list[list[int]]:
    if depth:
        return _ways(memory, state, pointer, depth - 1)
    own = memory.word(id(sys._getframe()) + pointer)
    read, file, words, few = os.preadv, memory.file, memory.words, [memory.page[0][:32]]
    data = bytearray(_STATE_BYTES)
    size = read(
        file, [data], state
    )  # no Python function is called from here on, so this frame stays the innermost
    ways = []
    for i, word in enumerate(memoryview(data)[: size // 8 * 8].cast("Q")):
        if word == own:
            ways.append([8 * i])
        try:
            known = read(file, few, word) == 32
        except (OSError, OverflowError):
            continue
        ways.extend([8 * i, 8 * j] for j in range(4) if known and words[j] == own)
    return ways


def verified(memory: ProcessMemory, layout: FrameLayout) -> bool:
    """Return whether a walk through memory finds the frames that Python reports."""
    frames = _chain(sys._getframe(), 1000)
    state = thread_state()
    address = state
    for offset in layout.current:
        address = memory.word(address + offset)
    expected = [(id(frame.f_code), frame.f_lasti) for frame in frames]
    walked: list[tuple[int, int]] = []
    while address and len(walked) <= 4 * len(expected):
        code = memory.word(address + layout.code) & TAGS
        lasti = memory.word(address + layout.instruction) - code - layout.bytecode
        walked.append((code, lasti))
        address = memory.word(address + layout.previous)
    codes = {code for code, _ in expected}
    walked = [step for step in walked if step[0] in codes]
    start = next((i for i, step in enumerate(walked) if step[0] == expected[0][0]), len(walked))
    return walked[start + 1 : start + len(expected)] == expected[1:]


def _place(data: bytes, part: bytes) -> int:
    place = data.find(part)
    if place < 0:
        raise NoFramesError("the data of str or bytes objects was not found")
    return place


def _only(places: set[int], what: str) -> int:
    if not places:
        raise NoFramesError(f"{what} was not found in memory")
    return min(places)
