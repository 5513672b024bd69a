"""One rank of the measured collectives, started by torchrun with its task as JSON in the only argument."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypedDict

from fathom.gauges.timer import Run
from fathom.units import MS_PER_S

WARM_UP = 3
SAMPLES = 9
REPETITIONS = 10  # calls per sample: few enough that repeated sums stay finite
HEAD_START = 2_000_000  # clock cycles, about a millisecond
PATIENCE_S = 60
ELEMENT_BYTES = 2  # bf16, like gradients and activations

Workload = Callable[[], object]


class Row(TypedDict):
    """The result of one collective: seconds per call by sample, of so many calls."""

    kind: str
    bytes: int
    seconds: list[float]
    repetitions: int


def main() -> None:
    """Measure every kind and size of the task; rank 0 appends a row for each to the output file."""
    import torch
    import torch.distributed as dist

    task = json.loads(sys.argv[1])
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", timeout=timedelta(seconds=PATIENCE_S), device_id=torch.device("cuda", rank)
    )
    torch.manual_seed(rank)
    for kind in task["kinds"]:
        for size in task["sizes"]:
            row = measure(torch, dist, kind, size, task["pace"])
            if rank == 0:
                append(task["output"], row)
    dist.destroy_process_group()


def append(output: str, row: Row) -> None:
    """Append one row to the file `output`, where it survives a crash of this rank."""
    with open(output, "a") as file:  # noqa: PTH123
        file.write(json.dumps(row) + "\n")


def measure(torch: Any, dist: Any, kind: str, size: int, pace: float) -> Row:
    """Return a row for one collective of `size` bytes, with the slowest rank's seconds per call by sample."""
    ranks = dist.get_world_size()
    count = size // ELEMENT_BYTES // ranks * ranks
    source = torch.randn(count, dtype=torch.bfloat16, device="cuda")
    buffer = torch.empty_like(source)
    run = timed(torch, dist, works(dist, kind, buffer, source), lambda: buffer.copy_(source))
    for _ in range(WARM_UP):
        run(REPETITIONS)
    samples = max(3, round(SAMPLES * min(1.0, pace)))
    seconds = [run(REPETITIONS) / REPETITIONS for _ in range(samples)]
    size = count * ELEMENT_BYTES
    return {"kind": kind, "bytes": size, "seconds": seconds, "repetitions": REPETITIONS}


def works(dist: Any, kind: str, buffer: Any, source: Any) -> Workload:
    """Return a function that runs the collective `kind`; a rank's share is the first part of its buffer."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    share = len(source) // ranks
    calls: dict[str, Workload] = {
        "all_reduce": lambda: dist.all_reduce(buffer),
        "all_gather": lambda: dist.all_gather_into_tensor(buffer, source[:share]),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(buffer[:share], source),
        "all_to_all": lambda: dist.all_to_all_single(buffer, source),
        "send_recv": lambda: _pass_on(dist, buffer, source, (rank + 1) % ranks, (rank - 1) % ranks),
    }
    return calls[kind]


def _pass_on(dist: Any, buffer: Any, source: Any, after: int, before: int) -> None:
    """Send from every rank to the next and receive from the previous one, in one group."""
    operations = [dist.P2POp(dist.isend, source, after), dist.P2POp(dist.irecv, buffer, before)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()


def timed(torch: Any, dist: Any, work: Workload, refresh: Workload) -> Run:
    """Return a function that runs `work` a number of times and returns the slowest rank's device time in s.

    `refresh` provides fresh data before each sample.
    """

    def run(count: int) -> float:
        refresh()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        torch.cuda.synchronize()
        torch.cuda._sleep(HEAD_START)  # lets the host issue all calls first, since only device time counts
        begin.record()
        for _ in range(count):
            work()
        end.record()
        end.synchronize()
        slowest = torch.tensor(begin.elapsed_time(end) / MS_PER_S, device="cuda")
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return float(slowest)

    return run


if __name__ == "__main__":
    main()
