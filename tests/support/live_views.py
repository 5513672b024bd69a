"""A view of a running program in which everything is known."""

from __future__ import annotations

from fathom.analysis.compare import Change
from fathom.analysis.live import (
    Alert,
    Counted,
    DeviceView,
    FoundCause,
    Insight,
    Live,
    RankView,
    Slowdown,
)

NOW, S = 1_700_000_723_000_000_000, 1_000_000_000
WORKERS = FoundCause(
    "input-too-few-workers",
    "Too few worker processes load the data",
    "Load the data with more worker processes",
    11.6,
    0.48,
)
COMPILE = FoundCause(
    "framework-not-compiled",
    "The model runs without torch.compile",
    "Compile the model with torch.compile",
    3.0,
    0.12,
)


def moved(entry: str, detail: str, ns: int) -> Change:
    """Return an entry that became longer by `ns`."""
    return Change(entry, detail, 0, ns, ns, 1e5, True, "same")


def rank(number: int = 0, step_ms: float = 24.1, **more) -> RankView:
    """Return a rank whose steps became slow."""
    entries = {"productive": 650.0, "start-up": 41.0, "checkpoint": 18.5, "stall": 2.5, "profiled": 0.6}
    known = {
        "rank": number,
        "pid": 100 + number,
        "source": "optimizer",
        "phase": "clean",
        "step": 52_800,
        "steps": 52_800,
        "steps_s": 671.0,
        "window_s": 10.0,
        "step_ms": step_ms,
        "baseline_ms": 12.4,
        "samples_per_s": 1328.0,
        "tokens_per_s": 1.36e6,
        "input_share": 0.481,
        "input_s": 34.5,
        "since_mark_s": 0.2,
        "samples": 1_689_600,
        "tokens": 1_730_150_400,
        "entries_s": entries,
        "goodput": 0.912,
        "recent_ms": [12.4, 12.3, 12.5, 12.4, 18.0, 24.0, 24.2, 24.1],
    }
    return RankView(**{**known, **more})


def full_view(ranks: int = 1) -> Live:
    """Return the view."""
    gpu = DeviceView(
        0,
        "NVIDIA H200",
        612.4,
        5.1e6,
        1980.0,
        3201.0,
        63.0,
        97.0,
        61.2 * 2**30,
        141.0 * 2**30,
        ["power cap"],
        41.2e9,
        40.8e9,
    )
    host = DeviceView(-1, "host", busy_percent=34.0, memory_bytes=12.1 * 2**30)
    change = Slowdown(
        12.4,
        24.1,
        [moved("idle: input", "", 11_400_000), moved("compute", "gemm 132·384", 300_000)],
        findings=[WORKERS],
    )
    insight = Insight(
        NOW - 95 * S,
        12.4,
        "Memory-bound: work limited by memory bandwidth takes 78 % of the 12.4 ms step.",
        "Compile the model with torch.compile.",
        mfu=0.121,
        communication_ms=0.9,
        findings=[COMPILE, WORKERS],
        counters=[
            Counted("gemm 132·384", "dram", "DRAM throughput", 71.0, "%"),
            Counted("gemm 132·384", "tensor", "tensor pipe", 34.0, "%"),
        ],
    )
    return Live(
        "runs/train.fathom",
        ["/usr/bin/python", "train.py", "--lr", "3e-4"],
        NOW,
        NOW - 723 * S,
        state="running",
        depth="auto",
        machine="NVIDIA H200",
        ranks=[rank(number, 24.1 - number) for number in range(ranks)],
        devices=[gpu, host],
        insight=insight,
        mfu=0.062,
        communication_share=0.073,
        alerts=[Alert(NOW - 60 * S, 0, 51_900, 12.4, 24.1, "explained", change)],
        rule="20 % slower for 50 steps",
        log_bytes=4_350_000,
    )
