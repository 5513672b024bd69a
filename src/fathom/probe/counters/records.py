"""Records of CUPTI's activities (13.x: cupti_activity.h) as events of a trace."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any, NamedTuple

COPY, SET, RUNTIME, KERNEL, SYNC = 1, 2, 5, 10, 38
KINDS = (KERNEL, COPY, SET)
KNOWN = (*KINDS, RUNTIME, SYNC)
SYNCS = {1: "cudaEventSynchronize", 3: "cudaStreamSynchronize", 4: "cudaDeviceSynchronize"}
COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
MEMORIES = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
LONGEST = 1024  # of a mangled name: Kineto leaves longer ones as they are


class Layout(NamedTuple):
    """The wanted fields of a record in order, and how they lie in memory."""

    fields: list[str]
    lies: struct.Struct


def _layout(fields: str, lies: str) -> Layout:
    return Layout(fields.split(), struct.Struct(lies))


LAYOUTS = {  # CUpti_ActivityKernel10, Memcpy6 and Memset4: later ones only append
    KERNEL: _layout(
        "registers start end device context stream gx gy gz bx by bz fixed dynamic local correlation"
        " name queued submitted node",
        "=6xH8x2Q8x3I6i2iI4xI8xQ8x2Q8xQ",
    ),
    COPY: _layout(
        "copy source target bytes start end device context stream correlation node", "=4x3Bx3Q4I16xQ"
    ),
    SET: _layout("bytes start end device context stream correlation memory node", "=8x3Q4I2xH12xQ"),
    RUNTIME: _layout("call start end thread correlation", "=4xI2Q4x2I"),  # CUpti_ActivityAPI
    SYNC: _layout("call start end correlation", "=4xI2QI"),  # CUpti_ActivitySynchronization
}


def kind_of(address: int) -> int:
    """The record's kind."""
    return ctypes.c_uint32.from_address(address).value


def event(kind: int, address: int) -> dict[str, Any]:
    """The record as Kineto writes it, but `ts` and `dur` in ns."""
    return _EVENTS[kind](fields(kind, address))


def fields(kind: int, address: int) -> dict[str, int]:
    """The wanted fields of the record."""
    layout = LAYOUTS[kind]
    values = layout.lies.unpack(ctypes.string_at(address, layout.lies.size))
    return dict(zip(layout.fields, values, strict=True))


def call(name: str, thread: int, start: int, end: int, correlation: int) -> dict[str, Any]:
    """A call of the runtime as Kineto writes it, but `ts` and `dur` in ns."""
    place = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": thread, "tid": thread}
    return {**place, "ts": start, "dur": end - start, "args": {"correlation": correlation}}


def _common(cat: str, name: str, found: dict[str, int], **more: Any) -> dict[str, Any]:
    args = {key: found[key] for key in ("device", "context", "stream", "correlation")}
    if found["node"]:
        args["graph node id"] = found["node"]
    place = {"ph": "X", "cat": cat, "name": name, "pid": found["device"], "tid": found["stream"]}
    return {**place, "ts": found["start"], "dur": found["end"] - found["start"], "args": args | more}


def _kernel(found: dict[str, int]) -> dict[str, Any]:
    return _common(
        "kernel",
        name_of(found["name"]),
        found,
        grid=[found["gx"], found["gy"], found["gz"]],
        block=[found["bx"], found["by"], found["bz"]],
        **{
            "registers per thread": found["registers"],
            "shared memory": found["fixed"] + found["dynamic"],
            "local memory per thread": found["local"],
        },
    )


def _copy(found: dict[str, int]) -> dict[str, Any]:
    source, target = _of(MEMORIES, found["source"]), _of(MEMORIES, found["target"])
    name = f"Memcpy {_of(COPIES, found['copy'])} ({source} -> {target})"
    return _common("gpu_memcpy", name, found, bytes=found["bytes"])


def _set(found: dict[str, int]) -> dict[str, Any]:
    name = f"Memset ({_of(MEMORIES, found['memory'])})"
    return _common("gpu_memset", name, found, bytes=found["bytes"])


_EVENTS = {KERNEL: _kernel, COPY: _copy, SET: _set}


def _of(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 < number < len(words) else "Unknown"


def name_of(address: int | str) -> str:
    """The name that CUPTI keeps at the address as long as its module is loaded."""
    if isinstance(address, str):
        return address
    mangled = ctypes.string_at(address) if address else b""
    return (demangled(mangled) if len(mangled) < LONGEST else mangled).decode(errors="replace")


@lru_cache(maxsize=4096)
def demangled(name: bytes) -> bytes:
    """A name of C++ as it was written; any other as it is."""
    library = _library()
    if library is None or not name.startswith(b"_Z"):
        return name
    status = ctypes.c_int(-1)
    found = library.__cxa_demangle(name, None, None, ctypes.byref(status))
    if not found:
        return name
    text = ctypes.string_at(found)
    library.free(ctypes.c_void_p(found))
    return text


@lru_cache(maxsize=1)
def _library() -> Any:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.free.restype = None
    return library
