"""Whether CUPTI's PC sampling can be had from Python in a running program, and what it costs there.

    python benchmarks/counters/pc_sampling.py [--seconds 2] [--period 15] [--serialized]

Nothing wraps that interface for Python, so the libcupti that torch has loaded is called through ctypes, after
`cupti_pcsampling.h` of CUDA 13.0. A child process multiplies matrices and normalises rows, without and with
sampling; it prints one JSON object: samples by stall reason and by kernel, and the time of a round without
and with sampling, or the call that was refused and why. Needs a GPU, torch and leave to read its counters.
"""

from __future__ import annotations

import argparse
import ctypes as c
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CONTINUOUS, SERIALIZED = 1, 2
PERIOD, REASONS, SCRATCH, HARDWARE, MODE, CONTROL, FORMAT, BUFFER = range(1, 9)  # attribute types
PARSED = 1
NAME_BYTES, MOST_PCS = 128, 8192
SCRATCH_BYTES, HARDWARE_BYTES = 16 << 20, 512 << 20
OUT_OF_MEMORY = 8  # the hardware's buffer is full; what was read until then is valid
READS, PAUSE_S, QUIET = 60, 0.1, 5  # CUPTI's threads decode every 100 ms
BUDGET_S = 120
SHOWN = 8


class RefusedError(Exception):
    """A call that did not succeed: its name, its code, CUPTI's words."""


class StallReason(c.Structure):
    _fields_ = (("index", c.c_uint32), ("samples", c.c_uint32))


class Pc(c.Structure):
    _fields_ = (
        ("size", c.c_size_t),
        ("cubin_crc", c.c_uint64),
        ("offset", c.c_uint64),
        ("function_index", c.c_uint32),
        ("pad", c.c_uint32),
        ("function", c.c_char_p),
        ("reason_count", c.c_size_t),
        ("reasons", c.POINTER(StallReason)),
        ("correlation", c.c_uint32),
    )


class Data(c.Structure):
    _fields_ = (
        ("size", c.c_size_t),
        ("most_pcs", c.c_size_t),
        ("total_samples", c.c_uint64),
        ("dropped", c.c_uint64),
        ("pcs", c.c_size_t),
        ("remaining", c.c_size_t),
        ("range", c.c_uint64),
        ("pc", c.POINTER(Pc)),
        ("others", c.c_uint64),
        ("full", c.c_uint8),
    )


class _Reasons(c.Structure):
    _fields_ = (("count", c.c_size_t), ("indices", c.POINTER(c.c_uint32)))


class _Value(c.Union):
    _fields_ = (
        ("all", c.c_uint64 * 3),
        ("number", c.c_uint32),
        ("bytes", c.c_size_t),
        ("reasons", _Reasons),
        ("pointer", c.c_void_p),
    )


class Attribute(c.Structure):
    _fields_ = (("type", c.c_int), ("status", c.c_int), ("value", _Value))


_HEAD = (("size", c.c_size_t), ("private", c.c_void_p), ("context", c.c_void_p))


class OfContext(c.Structure):
    """Parameters of enabling, starting, stopping and disabling."""

    _fields_ = _HEAD


class Configuration(c.Structure):
    _fields_ = (*_HEAD, ("count", c.c_size_t), ("attributes", c.POINTER(Attribute)))


class Reading(c.Structure):
    _fields_ = (*_HEAD, ("data", c.POINTER(Data)))


class HowMany(c.Structure):
    _fields_ = (*_HEAD, ("count", c.POINTER(c.c_size_t)))


class Named(c.Structure):
    _fields_ = (
        *_HEAD,
        ("count", c.c_size_t),
        ("indices", c.POINTER(c.c_uint32)),
        ("names", c.POINTER(c.c_char_p)),
    )


class Sampler:
    """PC sampling of one CUDA context, between `start` and `stop`."""

    def __init__(self, library: str, context: int, period: int, mode: int) -> None:
        self._cupti, self._context = c.CDLL(library), context
        self._call("Enable", OfContext())
        self.names = self._reasons()
        self._own, self._kept = self._data()
        values = self._values(period, mode)
        array = (Attribute * len(values))(*values)
        self._call("SetConfigurationAttribute", Configuration(count=len(values), attributes=array))

    def start(self) -> None:
        self._call("Start", OfContext())

    def stop(self) -> None:
        self._call("Stop", OfContext())

    def disable(self) -> None:
        self._call("Disable", OfContext())

    def read(self) -> Iterator[Data]:
        """The samples, until no more arrive."""
        quiet = 0
        for _ in range(READS):
            data, _kept = self._data()
            self._call("GetData", Reading(data=c.pointer(data)), may_fail=OUT_OF_MEMORY)
            yield data
            quiet = 0 if data.pcs else quiet + 1
            if quiet >= QUIET and not data.remaining:
                return
            time.sleep(0 if data.remaining else PAUSE_S)

    def _call(self, name: str, parameters: Any, may_fail: int = 0) -> None:
        parameters.size, parameters.context = c.sizeof(parameters), self._context
        code = getattr(self._cupti, f"cuptiPCSampling{name}")(c.byref(parameters))
        if code not in (0, may_fail):
            words = c.c_char_p()
            self._cupti.cuptiGetResultString(code, c.byref(words))
            raise RefusedError(f"cuptiPCSampling{name}", code, (words.value or b"").decode())

    def _reasons(self) -> dict[int, str]:
        """Stall reasons by index."""
        count = c.c_size_t()
        self._call("GetNumStallReasons", HowMany(count=c.pointer(count)))
        buffers = [c.create_string_buffer(NAME_BYTES) for _ in range(count.value)]
        names = (c.c_char_p * count.value)(*(c.cast(buffer, c.c_char_p) for buffer in buffers))
        indices = (c.c_uint32 * count.value)()
        self._call("GetStallReasons", Named(count=count.value, indices=indices, names=names))
        return {index: buffer.value.decode() for index, buffer in zip(indices, buffers, strict=True)}

    def _data(self) -> tuple[Data, list[Any]]:
        """A buffer for MOST_PCS places in code, and what has to live as long as it."""
        room = (StallReason * (MOST_PCS * len(self.names)))()
        pcs = (Pc * MOST_PCS)()
        step = len(self.names) * c.sizeof(StallReason)
        for place, pc in enumerate(pcs):
            pc.size = c.sizeof(Pc)
            pc.reasons = c.cast(c.addressof(room) + place * step, c.POINTER(StallReason))
        return Data(size=c.sizeof(Data), most_pcs=MOST_PCS, pc=pcs), [room, pcs]

    def _values(self, period: int, mode: int) -> list[Attribute]:
        self._indices = (c.c_uint32 * len(self.names))(*self.names)
        chosen = _Reasons(len(self.names), self._indices)
        return [
            Attribute(REASONS, 0, _Value(reasons=chosen)),
            Attribute(SCRATCH, 0, _Value(bytes=SCRATCH_BYTES)),
            Attribute(HARDWARE, 0, _Value(bytes=HARDWARE_BYTES)),
            Attribute(PERIOD, 0, _Value(number=period)),
            Attribute(MODE, 0, _Value(number=mode)),
            Attribute(CONTROL, 0, _Value(number=1)),
            Attribute(FORMAT, 0, _Value(number=PARSED)),
            Attribute(BUFFER, 0, _Value(pointer=c.addressof(self._own))),
        ]


def counted(reads: Iterator[Data], names: dict[int, str]) -> dict[str, Any]:
    """Samples by stall reason and by kernel; `lost` were dropped by the hardware."""
    reasons: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    total = lost = full = 0
    for data in reads:
        total, lost, full = total + data.total_samples, lost + data.dropped, full + data.full
        for pc in data.pc[: data.pcs]:
            for reason in pc.reasons[: pc.reason_count]:
                reasons[names.get(reason.index, str(reason.index))] += reason.samples
                kernels[(pc.function or b"?").decode(errors="replace")] += reason.samples
    return {
        "samples": total,
        "lost": lost,
        "buffer_full": full,
        "by_reason": dict(reasons.most_common()),
        "by_kernel": dict(kernels.most_common(SHOWN)),
    }


def loaded(name: str) -> str | None:
    """Path of a library that this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = (line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6)
    return next((path for path in paths if Path(path).name.startswith(name)), None)


def context() -> int:
    """This thread's CUDA context."""
    result = c.c_void_p()
    c.CDLL("libcuda.so.1").cuCtxGetCurrent(c.byref(result))
    return result.value or 0


def work() -> Callable[[float], float]:
    """A function that runs rounds of kernels for some seconds and returns the mean time of one in µs."""
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(16384, 1024, device="cuda")

    def rounds(seconds: float) -> float:
        torch.cuda.synchronize()
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(10):
                _ = a @ a, torch.nn.functional.layer_norm(x, (1024,)), x.exp()
            torch.cuda.synchronize()
            count += 10
        return 1e6 * (time.perf_counter() - start) / count

    rounds(1.0)
    return rounds


def child(options: argparse.Namespace) -> dict[str, Any]:
    rounds = work()
    library = loaded("libcupti.so")
    if library is None:
        return {"error": "the program has no libcupti loaded"}
    mode = SERIALIZED if options.serialized else CONTINUOUS
    result: dict[str, Any] = {
        "libcupti": library,
        "mode": "serialized" if options.serialized else "continuous",
    }
    result["round_us_without"] = rounds(options.seconds)
    try:
        sampler = Sampler(library, context(), options.period, mode)
        result["round_us_enabled"] = rounds(options.seconds)
        sampler.start()
        result["round_us_sampling"] = rounds(options.seconds)
        sampler.stop()
        result |= counted(sampler.read(), sampler.names)
        sampler.disable()
    except RefusedError as error:
        return result | {"error": dict(zip(("call", "code", "words"), error.args, strict=True))}
    result["round_us_afterwards"] = rounds(options.seconds)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each stretch")
    parser.add_argument("--period", type=int, default=15, help="a sample every 2^N cycles, 5 to 31")
    parser.add_argument("--serialized", action="store_true", help="one kernel at a time")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options)))
        return
    try:
        done = subprocess.run(
            [sys.executable, *sys.argv, "--child"],
            capture_output=True,
            text=True,
            timeout=BUDGET_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(json.dumps({"error": f"nothing came back within {BUDGET_S} s"}))
        return
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode:
        last = json.dumps({"error": f"the program ended with {done.returncode}", "said": done.stderr[-2000:]})
    print(last)


if __name__ == "__main__":
    main()
