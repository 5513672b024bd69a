"""The catalogue of ceilings: unit, gauge, duration, and whether it belongs to the quick set."""

from __future__ import annotations

from dataclasses import dataclass

HOST, GPU, LINKS = "host", "gpu", "links"  # scopes: a group needs no GPU, one GPU, or all GPUs
RATE, BYTES, OPS, TIME = "FLOP/s", "B/s", "1/s", "s"
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
HOST_DTYPES = ("fp32", "bf16", "fp64")
PACES = ("forward", "backward", "optimizer", "foreach", "fused")  # phases, and two optimizers of all tensors
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")


@dataclass(frozen=True)
class Gauge:
    """One ceiling to measure. `seconds` is its approximate duration, for progress and time limits."""

    id: str
    unit: str
    group: str
    seconds: float
    quick: bool = True


# The groups in the order of measurement: gauges that heat the GPU come last. A group's gauges share a
# process, and their functions are in the module of that name.
SCOPES = {
    **dict.fromkeys(("host", "host_pace", "loader", "disk"), HOST),
    **dict.fromkeys(
        ("memory", "caches", "copies", "latency", "pace", "vector", "matmul", "attention", "gds"), GPU
    ),
    **dict.fromkeys(("peers", "collectives"), LINKS),
}
GAUGES = (
    *(Gauge(f"host.{kind}", BYTES, "host", 1.0) for kind in ("read", "copy", "triad")),
    *(Gauge(f"host.matmul.{dtype}", RATE, "host", 1.0) for dtype in HOST_DTYPES),
    Gauge("host.cache", BYTES, "host", 0.8),
    Gauge("host.dispatch", TIME, "host", 0.3),
    *(Gauge(f"host.pace.{phase}", TIME, "host_pace", 0.4) for phase in PACES),
    Gauge("host.loader", BYTES, "loader", 12, quick=False),
    Gauge("disk.read.sequential", BYTES, "disk", 20, quick=False),
    Gauge("disk.read.random", BYTES, "disk", 10, quick=False),
    *(Gauge(f"hbm.{kind}", BYTES, "memory", 2.0) for kind in ("read", "write", "copy", "triad")),
    *(Gauge(name, BYTES, "caches", 1.5) for name in ("l2.read", "shared.read")),
    *(Gauge(f"copy.{way}.{kind}", BYTES, "copies", 1.5)
      for way in ("h2d", "d2h") for kind in ("pinned", "pageable")),
    *(Gauge(f"latency.{kind}", TIME, "latency", 0.5)
      for kind in ("launch", "graph_node", "synchronise", "small_copy", "item")),
    *(Gauge(f"pace.{phase}", TIME, "pace", 0.4) for phase in PACES),
    *(Gauge(f"vector.{kind}", unit, "vector", 0.7)
      for kind, unit in (("fp32", RATE), ("fp64", RATE), ("special", OPS))),
    *(Gauge(f"matmul.{dtype}", RATE, "matmul", 2.5) for dtype in DTYPES),
    *(Gauge(f"matmul.{dtype}.sustained", RATE, "matmul", 4.0, quick=dtype == "bf16") for dtype in DTYPES),
    *(Gauge(f"attention.{way}.bf16", RATE, "attention", 3.0) for way in ("forward", "backward")),
    Gauge("disk.read.gds", BYTES, "gds", 15, quick=False),
    Gauge("copy.peer", BYTES, "peers", 4, quick=False),
    Gauge("link.peer", BYTES, "peers", 15, quick=False),
    *(Gauge(f"collective.{kind}", BYTES, "collectives", 25, quick=False) for kind in COLLECTIVES),
)  # fmt: skip

BY_ID = {gauge.id: gauge for gauge in GAUGES}
QUICK = tuple(gauge.id for gauge in GAUGES if gauge.quick)
FULL = tuple(BY_ID)


def scope(name: str) -> str:
    """Return the scope of the gauge with this id: HOST, GPU or LINKS."""
    return SCOPES[BY_ID[name].group]
