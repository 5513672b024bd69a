"""Long runs at surface depth on a simulated clock: processor time per step, memory, and size of the log.

`python -m benchmarks.cost.soak` records 10^7 steps of 15 µs, and 24 hours of steps of 100 ms with batches
of a loader, in a few minutes. It keeps the figures of each tenth of the run, and how they change from the
third tenth to the last: they must not grow.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fathom.probe import session as probe
from fathom.probe.plain import StandIn
from fathom.probe.plan import ProbePlan
from fathom.probe.session import Session
from fathom.sounding import Store
from fathom.sounding.raw import import_raw

US, HOUR = 1_000, 3_600_000_000_000
START = 1_700_000_000_000_000_000
TENTHS = 10
RESULT = Path(__file__).parents[1] / "results" / "soak.json"


class Clock:
    """A clock that only the run moves."""

    def __init__(self) -> None:
        self.ns = START

    def __call__(self) -> int:
        return self.ns


@contextmanager
def recording(folder: Path, clock: Clock, count_after: int = 10_000) -> Iterator[Session]:
    """A recording at surface depth into `folder/raw`, on `clock`, that ends with the block."""
    (folder / "raw").mkdir(parents=True)
    with mock.patch.object(probe, "time_ns", clock):
        own = Session(str(folder / "raw"), ProbePlan("surface", count_after=count_after), StandIn())
        yield own
        own.end("exit")


def step(own: Session, clock: Clock, ns: int, loads: bool = False) -> None:
    """Take one step of `ns`; with `loads`, a tenth of it is the wait for a loader's batch."""
    if loads:
        own.signal("loader", 0)
        own.facts.batch(0, clock.ns, 4, None)
        own.batch((0, 0, 0, None, None, None, 1, clock.ns, ns // 10, *[None] * 6))
    clock.ns += ns
    own.signal("optimizer", 7)


def tenths(folder: Path, steps: int, ns: int, loads: bool) -> list[dict[str, Any]]:
    """Return processor time per step, resident memory and size of the log after each tenth of the run."""
    clock, figures = Clock(), []
    with recording(folder, clock) as own:
        for _ in range(TENTHS):
            began = time.process_time()
            for _ in range(steps // TENTHS):
                step(own, clock, ns, loads)
            took = time.process_time() - began
            figures.append({"us": round(1e6 * took * TENTHS / steps, 2), **_sizes(folder)})
    return figures


def _sizes(folder: Path) -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = sum(file.stat().st_size for file in (folder / "raw").iterdir())
    return {"resident_kib": pages * os.sysconf("SC_PAGE_SIZE") // 1024, "log_bytes": files}


def imported(folder: Path, clock: Clock) -> Store:
    """Make a sounding from the records, as a parent would whose program ended by now."""
    about = {"start_ns": START, "command": ["train"]}
    (folder / "raw" / "launch.json").write_text(json.dumps(about))
    (folder / "raw" / "end.json").write_text(json.dumps({"ended": "finished", "end_ns": clock.ns}))
    return import_raw(folder)


def change(figures: list[dict[str, Any]]) -> dict[str, float]:
    """Return the growth from the third tenth to the last; of the time per step, between medians of tenths."""
    early, late = ([tenth["us"] for tenth in some] for some in (figures[2:6], figures[6:]))
    grown = {name: figures[-1][name] - figures[2][name] for name in ("resident_kib", "log_bytes")}
    return {"us_ratio": round(statistics.median(late) / statistics.median(early), 3), **grown}


def main(steps: int = 10_000_000, hours: int = 24) -> None:
    """Print the figures of both runs, and keep those of runs of full length."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        short = tenths(Path(name) / "short", steps, 15 * US, loads=False)
        long = tenths(Path(name) / "long", hours * HOUR // (100_000 * US), 100_000 * US, loads=True)
    runs = {f"{steps:,} steps of 15 us": short, f"{hours} hours of steps of 100 ms": long}
    result = {title: {"change": change(figures), "tenths": figures} for title, figures in runs.items()}
    text = json.dumps({"load": round(load, 1), "processors": os.cpu_count(), **result}, indent=1)
    print(text)
    if len(sys.argv) == 1:
        RESULT.write_text(text + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
