"""Accounts of all ranks. Of a large job, each rank is loaded alone and reduced to its results.

The ranks of a large job are divided among processes of this machine, or among the tasks of a Ray cluster, if
that is asked for. The nodes of a cluster have to see the sounding under the same path.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue

import msgspec
import polars as pl

from fathom.analysis.account import Account, account_of
from fathom.errors import BadInputError, FathomError
from fathom.machine.model import Machine
from fathom.sounding import MOST_CACHED, Store, open_store

PROCESSES = 4  # at most: each needs about 200 MB
CHUNK = 8  # ranks that a process or a task analyses before it returns their results
NO_RAY = "Ray is not installed here; run `pip install ray`, or leave out `--on ray`."
RAY = "ray"
Progress = Callable[[int, int], None]


class Spread(msgspec.Struct):
    """Where the ranks of a large job are analysed: `on` is "" (this machine) or RAY.

    `progress` gets the number of ranks that are done, and of all.
    """

    on: str = ""
    progress: Progress = lambda done, of: None


class Chunk(msgspec.Struct):
    """Some ranks to be analysed elsewhere, with the arguments of `account_of`."""

    path: Path
    ranks: list[int]
    machine: Machine
    met: dict[int, pl.DataFrame]
    kind: str | None


def is_large(store: Store) -> bool:
    """Return whether a job has more ranks than are kept in memory together."""
    return len(store.ranks) > MOST_CACHED


def accounts_of(
    store: Store,
    machine: Machine,
    met: Mapping[int, pl.DataFrame],
    kind: str | None = None,
    spread: Spread | None = None,
) -> list[Account]:
    """Return the account of each rank, in order.

    Of a large job, only the accounts up to the first with a device keep their tables; the others are reduced.
    """
    if not is_large(store):
        return [account_of(store, rank, machine, met.get(rank), kind) for rank in store.ranks]
    first = first_accounts(store, machine, met, kind)
    left = store.ranks[len(first) :]
    parts = [left[at : at + CHUNK] for at in range(0, len(left), CHUNK)]
    chunks = [
        Chunk(store.path.absolute(), part, machine, {rank: met[rank] for rank in part if rank in met}, kind)
        for part in parts
    ]
    accounts = list(first)
    spread = spread or Spread()
    for some in (_on_ray if spread.on == RAY else _in_processes)(chunks):
        accounts += some
        spread.progress(len(accounts), len(store.ranks))
    return sorted(accounts, key=lambda account: account.rank)


def first_accounts(
    store: Store,
    machine: Machine,
    met: Mapping[int, pl.DataFrame],
    kind: str | None = None,
) -> list[Account]:
    """Return the accounts of the lowest ranks, up to the first that has a device."""
    accounts: list[Account] = []
    for rank in store.ranks:
        accounts.append(account_of(store, rank, machine, met.get(rank), kind))
        if accounts[-1].devices:
            return accounts
        accounts[-1] = accounts[-1].reduced()
    return accounts


def analyse(chunk: Chunk) -> list[Account]:
    """Return the reduced accounts of a chunk's ranks."""
    store = open_store(chunk.path)
    accounts = []
    for rank in chunk.ranks:
        alone = store.cached()
        accounts.append(account_of(alone, rank, chunk.machine, chunk.met.get(rank), chunk.kind).reduced())
    return accounts


def _in_processes(chunks: Sequence[Chunk]) -> Iterator[list[Account]]:
    """Yield the accounts of each chunk as soon as a process has them."""
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    count = min(PROCESSES, len(os.sched_getaffinity(0)), len(chunks))
    workers = [_worker() for _ in range(count)]
    for worker in workers:
        idle.put(worker)

    def ask(chunk: Chunk) -> list[Account]:
        worker = idle.get()
        try:
            return _asked(worker, chunk)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(max(count, 1)) as threads:
            yield from threads.map(ask, chunks)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _worker() -> subprocess.Popen[bytes]:
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _asked(worker: subprocess.Popen[bytes], chunk: Chunk) -> list[Account]:
    """Return a worker's accounts of a chunk. Raises its FathomError, and FathomError if it died."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        pickle.dump(chunk, worker.stdin)
        worker.stdin.flush()
        answer = pickle.load(worker.stdout)
    except (OSError, EOFError):
        ranks = f"ranks {chunk.ranks[0]} to {chunk.ranks[-1]}"
        raise FathomError(
            f"The process that analysed {ranks} died, perhaps for lack of memory; run the command again."
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def main() -> None:
    """Analyse chunks from standard input, and write their accounts to standard output."""
    while True:
        try:
            chunk: Chunk = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: list[Account] | Exception = analyse(chunk)
        except FathomError as error:
            answer = error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _on_ray(chunks: Sequence[Chunk]) -> Iterator[list[Account]]:
    """Yield the accounts of each chunk from tasks of a Ray cluster. Raises BadInputError without Ray."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise BadInputError(NO_RAY) from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="error")
    task = ray.remote(analyse)
    waiting = [task.remote(chunk) for chunk in chunks]
    while waiting:
        (done, *_), waiting = ray.wait(waiting, num_returns=1)
        yield ray.get(done)
