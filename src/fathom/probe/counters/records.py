"""Read CUPTI's activity records (13.x: cupti_activity.h), and convert them to events of a trace."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import Any, NamedTuple, TypedDict

COPY, SET, RUNTIME, KERNEL = 1, 2, 5, 10
KINDS = (KERNEL, COPY, SET)
KNOWN = (*KINDS, RUNTIME)
COPIES = ("", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
MEMORIES = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
LONGEST = 1024  # longer mangled names stay mangled, as in Kineto


class RecordLayout(NamedTuple):
    """The fields that are read from a record, in order, and their format in memory."""

    fields: list[str]
    form: struct.Struct


def _layout(fields: str, form: str) -> RecordLayout:
    return RecordLayout(fields.split(), struct.Struct(form))


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
}


class Event(TypedDict):
    """An event in Kineto's format, but with `ts` and `dur` in ns."""

    ph: str
    cat: str
    name: str
    pid: int
    tid: int
    ts: float
    dur: float
    args: dict[str, object]


def kind_of(address: int) -> int:
    """Return the record's kind."""
    return ctypes.c_uint32.from_address(address).value


def event(kind: int, address: int) -> Event:
    """Return the record at `address` as an event in Kineto's format, but with `ts` and `dur` in ns."""
    return _EVENTS[kind](fields(kind, address))


def fields(kind: int, address: int) -> dict[str, int]:
    """Read the fields of the record at `address`, by name."""
    layout = LAYOUTS[kind]
    values = layout.form.unpack(ctypes.string_at(address, layout.form.size))
    return dict(zip(layout.fields, values, strict=True))


def call(name: str, thread: int, start: int, end: int, correlation: int) -> Event:
    """Return a call of the runtime in Kineto's format, but with `ts` and `dur` in ns."""
    args: dict[str, object] = {"correlation": correlation}
    return _event("cuda_runtime", name, (thread, thread), start, end - start, args)


def _event(
    cat: str, name: str, place: tuple[int, int], start: int, length: int, args: dict[str, object]
) -> Event:
    pid, tid = place
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
            "ts": start, "dur": length, "args": args}  # fmt: skip


def _common(cat: str, name: str, record: dict[str, int], **more: object) -> Event:
    args = {key: record[key] for key in ("device", "context", "stream", "correlation")}
    if record["node"]:
        args["graph node id"] = record["node"]
    start, length = record["start"], record["end"] - record["start"]
    return _event(cat, name, (record["device"], record["stream"]), start, length, {**args, **more})


def _kernel(record: dict[str, int]) -> Event:
    return _common(
        "kernel",
        name_of(record["name"]),
        record,
        grid=[record["gx"], record["gy"], record["gz"]],
        block=[record["bx"], record["by"], record["bz"]],
        **{
            "registers per thread": record["registers"],
            "shared memory": record["fixed"] + record["dynamic"],
            "local memory per thread": record["local"],
        },
    )


def _copy(record: dict[str, int]) -> Event:
    source, target = _of(MEMORIES, record["source"]), _of(MEMORIES, record["target"])
    name = f"Memcpy {_of(COPIES, record['copy'])} ({source} -> {target})"
    return _common("gpu_memcpy", name, record, bytes=record["bytes"])


def _set(record: dict[str, int]) -> Event:
    name = f"Memset ({_of(MEMORIES, record['memory'])})"
    return _common("gpu_memset", name, record, bytes=record["bytes"])


_EVENTS = {KERNEL: _kernel, COPY: _copy, SET: _set}


def _of(words: tuple[str, ...], number: int) -> str:
    return words[number] if 0 < number < len(words) else "Unknown"


def name_of(address: int | str) -> str:
    """Return the kernel name at the address, which CUPTI keeps while its module is loaded."""
    if isinstance(address, str):
        return address
    mangled = ctypes.string_at(address) if address else b""
    return (demangled(mangled) if len(mangled) < LONGEST else mangled).decode(errors="replace")


@lru_cache(maxsize=4096)
def demangled(name: bytes) -> bytes:
    """Return a mangled C++ name in source form, and any other name unchanged."""
    library = _library()
    if library is None or not name.startswith(b"_Z"):
        return name
    status = ctypes.c_int(-1)
    address = library.__cxa_demangle(name, None, None, ctypes.byref(status))
    if not address:
        return name
    text = ctypes.string_at(address)
    library.free(ctypes.c_void_p(address))
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
