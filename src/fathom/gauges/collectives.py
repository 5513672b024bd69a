"""Measure NCCL collectives over all GPUs by message size, with one process per GPU under torchrun.

The result is the bus bandwidth as in nccl-tests (doc/PERFORMANCE.md): size / time × the share of the data
that each link carries in that collective. It describes the links, not the algorithm.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

from fathom.gauges.catalogue import COLLECTIVES
from fathom.gauges.collective_worker import Row
from fathom.gauges.conditions import ConditionSensors, Watch
from fathom.gauges.job import GaugeJob
from fathom.gauges.measurements import Measurement, NotHereError, ceiling
from fathom.gauges.timer import Sample
from fathom.machine import Ceiling
from fathom.machine.model import Setting
from fathom.units import GIB, KIB, MIB

SIZES = (8 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB, 256 * MIB, GIB)
PATIENCE_S, GRACE_S = 240, 35  # torchrun gives its ranks 30 s to end
WORKER = "fathom.gauges.collective_worker"
ELASTIC = "distributed/elastic"  # from its first line on, the log only says that some rank failed


def bus_factor(kind: str, ranks: int) -> float:
    """Return the factor from algorithm bandwidth (size / time) to bus bandwidth, as in nccl-tests.

    The size is that of the larger buffer of one rank: the full tensor for all_reduce, the gathered result for
    all_gather, the tensor before scattering for reduce_scatter, all that a rank sends for all_to_all, and the
    message for send_recv.
    """
    share = (ranks - 1) / ranks
    factors = {"all_reduce": 2 * share, "send_recv": 1.0}
    return factors.get(kind, share)


@cache
def _measured(job: GaugeJob) -> tuple[list[Row], Watch]:
    """Return the first rank's rows, and the first GPU's sensor readings."""
    if len(job.devices) < 2:
        raise NotHereError("there is only one GPU")
    kinds = [name.removeprefix("collective.") for name in job.ids if name.startswith("collective.")]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rows.jsonl"
        task = {"kinds": kinds, "sizes": SIZES, "pace": job.pace, "output": str(output)}
        with Watch(ConditionSensors()) as watch:
            log = _run(len(job.devices), task)
        rows = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    if not rows:
        raise NotHereError(f"torchrun returned no result: {log}")
    return rows, watch


def _run(ranks: int, task: dict[str, object]) -> str:
    """Run the ranks, and return the reason from their log in case they failed."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, f"--nproc-per-node={ranks}", "-m", WORKER, json.dumps(task)]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"it took longer than {PATIENCE_S} s"
        log.seek(0)
        lines = log.read().splitlines()
    return _reason(lines) or f"it exited with status {process.returncode}"


def _reason(lines: list[str]) -> str:
    """Return the ranks' last error in a log, else their last line."""
    own = [line for line in takewhile(lambda line: ELASTIC not in line, lines) if line.strip()]
    errors = [line for line in own if "Error" in line]
    return (errors or own or [""])[-1].strip()[:200]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate torchrun with SIGTERM first, so that it can end its ranks."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _measure(kind: str, job: GaugeJob) -> Ceiling:
    rows, watch = _measured(job)
    own = sorted((row for row in rows if row["kind"] == kind), key=lambda row: row["bytes"])
    if not own:
        raise NotHereError("this collective did not finish")
    results = [_result(row, len(job.devices), watch) for row in own]
    series: list[Setting] = [
        {"bytes": row["bytes"], "value": t.rate, "seconds": t.sample.median}
        for row, t in zip(own, results, strict=True)
    ]
    return ceiling(f"collective.{kind}", max(results, key=lambda t: t.rate), series)


def _result(row: Row, ranks: int, watch: Watch) -> Measurement:
    work = row["bytes"] * bus_factor(row["kind"], ranks)
    at = {"bytes": row["bytes"], "ranks": ranks}
    taken = Sample(tuple(row["seconds"]), row["repetitions"])
    return Measurement(at, taken, work, watch.conditions, watch.flags)


GAUGES: dict[str, Callable[[GaugeJob], Ceiling]] = {
    f"collective.{kind}": partial(_measure, kind) for kind in COLLECTIVES
}
