"""Simulate a job of several GPUs: hosts launch work in order, streams run it in order, collectives meet.

A file beside this one builds one kind: `FAULT`, its labels, and `build(form, severity)`, which returns a
`Job`. What is written is a sounding that says that it was simulated. Times are in nanoseconds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

US, MS = 1_000, 1_000_000
START = 1_700_000_000_000_000_000
COMPUTE, COMM, COPY = 7, 20, 30  # streams
CLEAN, TIMELINE = 24, 8  # steps of each phase
MAIN, ENGINE = 100, 200  # threads
CALL_US, LATENCY_US = 6, 5
NVLINK, NETWORK = 350e9, 40e9  # bytes per second of bus bandwidth, within a host and between hosts
DTYPES = {"bf16": ("BFloat16", 2, "c10::BFloat16"), "fp32": ("Float", 4, "float"), "int32": ("Int", 4, "int")}
KERNELS = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_{}_RING_LL",
    "all_gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_{}_RING_LL",
    "all_to_all": "ncclDevKernel_SendRecv",
    "barrier": "ncclDevKernel_AllReduce_Sum_u8_RING_LL",
    "send_recv": "ncclDevKernel_SendRecv",
}
RECORDED = {
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_allv",
}
MODEL = "NVIDIA H200"


@dataclass
class Rank:
    """One rank: its host's clock, the ends of its streams, and the rows that were recorded."""

    number: int
    now: int = START
    ends: dict[int, int] = field(default_factory=dict)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    recording: bool = False
    clock_mhz: int = 1980
    count: int = 0
    before: int = 0  # end of the device's work of the step before

    def add(self, table: str, **row: Any) -> None:
        if self.recording:
            self.tables.setdefault(table, []).append({"phase": "timeline", "burst": 1, **row})

    def spend(self, us: float) -> tuple[int, int]:
        """Let the host work for a while."""
        start, self.now = self.now, self.now + round(us * US)
        return start, self.now

    def wait(self, cause: str, us: float) -> None:
        """Wait on the host for a recorded cause, as for input."""
        start, end = self.spend(us)
        self.add("waits", thread=MAIN, cause=cause, start_ns=start, end_ns=end, detail="loader 0")

    def op(self, name: str, start: int, end: int, backward: bool = False, **more: Any) -> int:
        self.count += 1
        thread = ENGINE if backward else MAIN
        times = {"start_ns": start, "end_ns": end}
        more.setdefault("kind", "op")
        self.add("ops", id=self.count, name=name, thread=thread, **times, **more)
        return self.count

    def launch(self, name: str, us: float, op: str = "aten::mm", stream: int = COMPUTE, **more: Any) -> None:
        """Launch a kernel from an op; `more` are columns of the op, and `backward`."""
        start, end = self.spend(2 * CALL_US)
        parent = self.op(op, start, end, **more)
        begin = self.ready(stream)
        self.kernel(
            parent, start, begin, begin + round(us * US), stream, name, "compute", more.get("backward", False)
        )

    def replay(self, us: Sequence[float], name: str) -> None:
        """Launch a CUDA graph of kernels that take so long, one right after the other."""
        start, _ = self.spend(2 * CALL_US)
        self.count += 1
        number, begin = self.count, self.ready(COMPUTE)
        call = {"start_ns": start, "end_ns": start + CALL_US * US}
        self.add("launches", correlation=number, op=None, thread=MAIN, api="cudaGraphLaunch", **call)
        for node, length in enumerate(us):
            end = begin + round(length * US)
            row = {"device": self.number, "stream": COMPUTE, "correlation": number, "kind": "compute"}
            times = {"start_ns": begin, "end_ns": end}
            self.add("kernels", **row, name=name, family=name, graph_node=node + 1, **times)
            begin = self.ends[COMPUTE] = end + US // 2

    def ready(self, stream: int, after: Sequence[int] = ()) -> int:
        """When work that is launched now can start on `stream`, after that of other streams."""
        behind = (self.ends.get(other, 0) + US for other in (stream, *after))
        return max(self.now + LATENCY_US * US, *behind)

    def kernel(
        self,
        op: int,
        called: int,
        begin: int,
        end: int,
        stream: int,
        name: str,
        kind: str,
        backward: bool = False,
    ) -> None:
        self.ends[stream] = end
        thread = ENGINE if backward else MAIN
        call = {"start_ns": called + CALL_US * US // 2, "end_ns": called + CALL_US * US}
        self.add("launches", correlation=op, op=op, thread=thread, api="cudaLaunchKernel", **call)
        row = {"device": self.number, "stream": stream, "correlation": op, "kind": kind, "name": name}
        self.add("kernels", **row, family=name, start_ns=begin, end_ns=end)

    def event(self, backward: bool = False) -> None:
        """Let a stream wait for another one."""
        start, end = self.spend(1)
        self.count += 1
        call = {"api": "cudaStreamWaitEvent", "start_ns": start, "end_ns": end}
        thread = ENGINE if backward else MAIN
        self.add("launches", correlation=self.count, op=None, thread=thread, **call)

    def synchronise(self, api: str = "cudaStreamSynchronize", streams: Iterable[int] = (COMPUTE,)) -> None:
        """Wait on the host for all work of `streams`."""
        start = self.now
        last = max((self.ends.get(stream, 0) for stream in streams), default=0)
        self.now = max(self.now + CALL_US * US, last + LATENCY_US * US)
        self.count += 1
        times = {"start_ns": start, "end_ns": self.now}
        self.add("launches", correlation=self.count, op=None, thread=MAIN, api=api, **times)

    def item(self, op: str = "aten::item") -> None:
        """Copy a value to the host, and wait for it."""
        start = self.now
        number = self.op(op, start, start)
        begin = self.ready(COMPUTE, (COMM,))
        row = {"device": self.number, "stream": COMPUTE, "correlation": number, "kind": "copy", "bytes": 4}
        name = "Memcpy DtoH (Device -> Pageable)"
        self.ends[COMPUTE] = begin + 2 * US
        call = {"api": "cudaMemcpyAsync", "start_ns": start, "end_ns": start + CALL_US * US}
        self.add("launches", correlation=number, op=number, thread=MAIN, **call)
        times = {"start_ns": begin, "end_ns": begin + 2 * US}
        self.add("kernels", **row, name=name, family=name, direction="DtoH pageable", **times)
        self.spend(CALL_US)
        self.synchronise()
        if self.recording:
            self.tables["ops"][-1]["end_ns"] = self.now


@dataclass
class Job:
    """The ranks of a job. `hosts` is the number of machines that share them evenly."""

    count: int = 2
    hosts: int = 1
    seed: int = 1
    memory_bytes: int = 60 << 30  # that the allocator reserved at most
    kind: str = "train"  # of its steps
    samples: int | None = None  # of the current step
    ranks: list[Rank] = field(default_factory=list)
    steps_ns: list[int] = field(default_factory=list)
    draw: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self.ranks, self.draw = [Rank(number) for number in range(self.count)], random.Random(self.seed)

    def host(self, rank: int) -> str:
        return f"node-{rank * self.hosts // self.count}"

    def run(self, step: Callable[[Job], None]) -> Job:
        """Run `step` often enough for both phases; the timeline records more than marks."""
        for number in range(CLEAN + TIMELINE):
            marks = [rank.now for rank in self.ranks]
            devices = [max(rank.ends.get(COMPUTE, rank.now), rank.now) for rank in self.ranks]
            for rank in self.ranks:
                rank.recording = number >= CLEAN
            step(self)
            for rank, mark, device in zip(self.ranks, marks, devices, strict=True):
                self._end(rank, number, mark, device)
        return self

    def _end(self, rank: Rank, number: int, mark: int, device: int) -> None:
        """End a step: the host may be ahead of the device by one step."""
        rank.now = max(rank.now, rank.before)
        rank.before = rank.ends[COMPUTE] = max(rank.ends.values(), default=rank.now)
        after = max(rank.before, rank.now)
        source = "optimizer" if self.kind == "train" else "engine"
        row = {"step": number, "kind": self.kind, "source": source, "thread": MAIN, "stream": COMPUTE}
        row["samples"] = self.samples
        times = {"mark_ns": mark, "end_ns": rank.now, "device_ns": device, "device_end_ns": after}
        phase = {"phase": "timeline", "burst": 1} if number >= CLEAN else {"phase": "clean", "burst": 0}
        rank.tables.setdefault("steps", []).append({**row, **times, **phase})
        if rank.number == 0:
            self.steps_ns.append(after - device)

    @property
    def step_ms(self) -> float:
        """The mean step of rank 0 once it is steady."""
        steady = self.steps_ns[len(self.steps_ns) // 4 :]
        return sum(steady) / len(steady) / MS

    def collective(
        self,
        operation: str,
        size: float,
        dtype: str = "bf16",
        members: Sequence[int] = (),
        group: str = "default_pg",
        us: float | None = None,
        stream: int = COMM,
        after: Sequence[int] = (COMPUTE,),
        backward: bool = False,
        sent: dict[int, float] | None = None,
        received: dict[int, float] | None = None,
    ) -> None:
        """Run a collective of `size` bytes: it ends on all members some time after the last one began.

        `sent` and `received` are the bytes of each rank, if they differ.
        """
        members = list(members) or list(range(self.count))
        took = self.transfer_us(operation, size, members) if us is None else us
        begun = {}
        for rank in (self.ranks[number] for number in members):
            if after:
                rank.event(backward)
            start, _ = rank.spend(3 * CALL_US)
            begun[rank.number] = (start, rank.ready(stream, after))
        last = max(begin for _, begin in begun.values())
        for number, (start, begin) in begun.items():
            rank, end = self.ranks[number], last + round(took * US) + self.draw.randrange(500)
            sizes = ((of or {}).get(number, size) for of in (sent, received))
            values = self._values(operation, *sizes, dtype, members, group)
            op = rank.op("record_param_comms", start, start + 2 * CALL_US * US, backward, values=values)
            name = KERNELS[operation].format("bf16" if dtype == "bf16" else "f32")
            rank.kernel(op, start, begin, end, stream, name, "collective", backward)

    @staticmethod
    def _values(
        operation: str, sent: float, received: float, dtype: str, members: Sequence[int], group: str
    ) -> str:
        name, width, _ = DTYPES[dtype]
        shares = {"all_gather": (len(members), 1), "reduce_scatter": (1, len(members))}
        parts = shares.get(operation, (1, 1))
        elements = [round(size / width) // part for size, part in zip((sent, received), parts, strict=True)]
        called = RECORDED.get(operation, operation.replace("all_reduce", "allreduce"))
        fields = [called, name, *elements, len(members), "0", group, str(list(members))]
        return json.dumps([str(each) for each in fields])

    def transfer_us(self, operation: str, size: float, members: Sequence[int]) -> float:
        """The time of a collective by its bytes, the number of ranks and the slowest link between them."""
        across = len({self.host(member) for member in members}) > 1
        share = (len(members) - 1) / len(members)
        moved = size * share * (2 if operation == "all_reduce" else 1)
        return (25 if across else 12) + moved / (NETWORK if across else NVLINK) * 1e6

    def send(self, source: int, target: int, size: float, backward: bool = False) -> None:
        """Send `size` bytes; the target's next compute waits for them."""
        took = self.transfer_us("send_recv", 2 * size, (source, target))
        ends, called = [], {}
        for number, name in ((source, "send"), (target, "recv")):
            rank = self.ranks[number]
            start, _ = rank.spend(2 * CALL_US)
            after = (COMPUTE,) if number == source else ()
            called[number] = (start, rank.ready(COPY if number == source else COMM, after), name)
            ends.append(called[number][1])
        end = max(ends) + round(took * US)
        for number, (start, begin, name) in called.items():
            rank = self.ranks[number]
            elements = round(size / 2)
            fields = [name, "BFloat16", elements, elements, 2, "0", "pipeline", str([source, target])]
            values = json.dumps([str(each) for each in fields])
            op = rank.op("record_param_comms", start, start + CALL_US * US, backward, values=values)
            stream = COPY if number == source else COMM
            rank.kernel(op, start, begin, end, stream, KERNELS["send_recv"], "collective", backward)
        self.follow([target])

    def follow(self, members: Sequence[int] = (), stream: int = COMPUTE, on: int = COMM) -> None:
        """Let later work of `stream` wait for what `on` has been given so far, by an event."""
        for number in members or range(self.count):
            rank = self.ranks[number]
            rank.event()
            rank.ends[stream] = max(rank.ends.get(stream, 0), rank.ends.get(on, 0))

    def write(self, folder: Path) -> Any:
        """A sounding of it in `folder`, opened."""
        import polars as pl

        from fathom.sounding import Manifest, Writer, conform
        from fathom.sounding import Rank as About

        writer = Writer(folder)
        for rank in self.ranks:
            for table, rows in {**rank.tables, **dict(self._sensed(rank))}.items():
                frame = pl.DataFrame(rows, infer_schema_length=None)
                times = [name for name in ("start_ns", "mark_ns") if name in frame.columns]
                writer.write(rank.number, table, conform(table, frame.sort(times) if times else frame))
        about = [
            About(rank.number, MAIN, self.host(rank.number), self.count, {rank.number: MODEL})
            for rank in self.ranks
        ]
        name = folder.name.removesuffix(".fathom")
        manifest = Manifest(name=name, created_ns=START, command=["simulated", name], ranks=about)
        return writer.finish(manifest, self._machine())

    def _sensed(self, rank: Rank) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        times = range(START, rank.now, 100 * MS)
        fixed = {
            "device": rank.number,
            "sm_clock_mhz": rank.clock_mhz,
            "busy_percent": 99.0,
            "power_w": 500.0,
        }
        throttle = 0 if rank.clock_mhz == 1980 else 0x40
        yield "telemetry", [{**fixed, "time_ns": time, "throttle": throttle} for time in times]
        peak = {
            "device": rank.number,
            "event": "peak",
            "allocated": self.memory_bytes,
            "reserved": self.memory_bytes,
        }
        yield "memory", [{**peak, "time_ns": rank.now, "phase": "timeline"}]

    def _machine(self) -> dict[str, Any]:
        more = {"memory_bytes": 150_754_820_096, "multiprocessors": 132, "sm_clock_max_mhz": 1980}
        common = {"name": MODEL, "compute_capability": "9.0", **more}
        gpus = [{"index": rank.number, **common} for rank in self.ranks]
        return {"host": {"hostname": "simulated"}, "gpus": gpus}


def product(
    rank: Rank, us: float, backward: bool = False, name: str = "nvjet_tst_128x256_64x4_h_bz_NNT"
) -> None:
    """A large bfloat16 product."""
    shapes, types = json.dumps([[8192, 4096], [4096, 4096]]), json.dumps(["c10::BFloat16", "c10::BFloat16"])
    rank.launch(name, us, "aten::mm", shapes=shapes, dtypes=types, backward=backward)


def forward(job: Job, layers: int, us: float, slower: dict[int, float] | None = None) -> None:
    """The forward pass of all ranks; `slower` are factors by rank."""
    for rank in job.ranks:
        for _ in range(layers):
            product(rank, us * (slower or {}).get(rank.number, 1.0))


def backward(
    job: Job, layers: int, us: float, bucket: float = 0.0, every: int = 1, slower: dict[int, float] | None =
    None, dtype: str = "bf16", ) -> None:  # fmt: skip
    """The backward pass, with an all-reduce of `bucket` bytes beside it after `every` layers."""
    for layer in range(layers):
        for rank in job.ranks:
            product(rank, 2 * us * (slower or {}).get(rank.number, 1.0), backward=True)
        if bucket and (layer + 1) % every == 0:
            job.collective("all_reduce", bucket, dtype, backward=True)
    job.follow()


def update(job: Job, us: float = 200) -> None:
    """The optimizer's step."""
    name = "multi_tensor_apply_kernel_adamw"
    for rank in job.ranks:
        rank.launch(name, us, "aten::_fused_adamw_")
