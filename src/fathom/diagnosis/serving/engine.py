"""A model of the recorded engine, which replays the same requests with a changed limit or shorter prompts.

An iteration takes a fixed time, and a time per prompt token and per decoding request, fitted to the recorded
iterations. Requests arrive as recorded; the scheduler is first come, first served, with the recorded limits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import polars as pl

Tables = dict[str, pl.DataFrame]
MS = 1e6
BETWEEN_RUNS = 0.1  # of the time in the engine: runs of one server differ by it


@dataclass(frozen=True)
class Engine:
    """Milliseconds of an iteration: `fixed` + `token` per prompt token + `decode` per decoding request."""

    fixed: float
    token: float
    decode: float
    limit: int  # requests per batch
    budget: int  # tokens per batch


@dataclass(frozen=True)
class Asked:
    """One request: when it was submitted (ms), the prompt tokens to read, the tokens to generate."""

    at: float
    prompt: int
    generate: int


def engine_of(tables: Tables) -> Engine:
    """Fit the engine to its iterations; a pause until the next one counts while requests are active."""
    turns = tables["turns"]
    decodes = pl.col("phase") == "decode"
    counts = turns.group_by("iteration").agg(
        n=pl.len(), prompt=pl.col("tokens").filter(~decodes).sum(), decode=decodes.sum()
    )
    rows = tables["iterations"].join(counts, on="iteration").sort("start_ns")
    took = _periods(rows) / MS
    matrix = np.column_stack([np.ones(rows.height), rows["prompt"].to_numpy(), rows["decode"].to_numpy()])
    fixed, token, decode = _fitted(matrix, took)
    total = rows["prompt"] + rows["decode"]
    return Engine(fixed, token, decode, int(rows["n"].max()), int(total.max()))  # type: ignore[arg-type]


def _periods(rows: pl.DataFrame) -> np.ndarray:
    """Return the time from each iteration's start to the next one's, without pauses longer than itself."""
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    following = np.append(starts[1:], ends[-1])
    own = (ends - starts).astype(float)
    return np.minimum(following - starts, 2 * own).astype(float)


def _fitted(matrix: np.ndarray, took: np.ndarray) -> tuple[float, float, float]:
    """Return coefficients of the least squared error, none negative, scaled to the time of all."""
    kept = [0, 1, 2]
    while True:
        solved, *_ = np.linalg.lstsq(matrix[:, kept], took, rcond=None)
        if (solved >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(np.argmin(solved)))
    result = np.zeros(3)
    result[kept] = np.maximum(solved, 0.0)
    result *= took.sum() / max(float((matrix @ result).sum()), 1e-9)
    return float(result[0]), float(result[1]), float(result[2])


def asked_of(tables: Tables, without_repeated: bool = False) -> list[Asked]:
    """Return the requests by time of submission; without the repeated tokens of their prompts if asked."""
    rows = tables["requests"].sort("submitted_ns")
    spare = pl.max_horizontal("cached", "repeated") if without_repeated else pl.col("cached")
    read = rows.select("submitted_ns", pl.max_horizontal(pl.col("prompt") - spare, 1), "generated")
    return [Asked(at / MS, int(prompt), int(n or 1)) for at, prompt, n in read.iter_rows()]


def mean_ms(engine: Engine, asked: list[Asked]) -> float:
    """Replay the requests, and return their mean time in the engine in milliseconds."""
    coming, reading, decoding = deque(asked), deque[list[float]](), list[list[float]]()
    now, total = asked[0].at, 0.0
    while coming or reading or decoding:
        while coming and coming[0].at <= now:
            request = coming.popleft()
            reading.append([request.at, request.prompt, request.generate])
        if not reading and not decoding:
            now = coming[0].at
            continue
        read = _read(reading, engine, len(decoding))
        now += engine.fixed + engine.token * read + engine.decode * len(decoding)
        ready = [reading.popleft() for _ in range(len(reading)) if reading and reading[0][1] <= 0]
        for state in [*decoding, *ready]:
            state[2] -= 1
        finished = [state for state in [*decoding, *ready] if state[2] <= 0]
        total += sum(now - state[0] for state in finished)
        decoding = [state for state in [*decoding, *ready] if state[2] > 0]
    return total / len(asked)


def _read(reading: deque[list[float]], engine: Engine, decoding: int) -> int:
    """Read prompts within the limits, and return the number of tokens."""
    room, places, read = engine.budget - decoding, engine.limit - decoding, 0
    for state in list(reading)[: max(places, 0)]:
        part = min(int(state[1]), room - read)
        if part <= 0:
            break
        state[1] -= part
        read += part
    return read


def saved(tables: Tables, changes: dict[str, int | None]) -> tuple[float, float]:
    """Return the lower and upper end of the share of the engine's time that the changes save.

    If no batch had more than one decode, what another one costs is unknown: between nothing and all of it. So
    is the limit of tokens per batch that a raised limit of requests would meet.
    The model's own error on the recorded run widens the interval.
    """
    engine, asked = engine_of(tables), asked_of(tables)
    base, seen = mean_ms(engine, asked), _seen(tables)
    error = max(abs(base - seen) / max(base, seen), BETWEEN_RUNS)
    wanted = asked_of(tables, "repeated" in changes)
    limit = len(asked) if "limit" in changes else engine.limit
    single = engine.fixed + engine.decode
    costs = [engine.decode] if engine.limit > 1 else [0.0, single]
    budgets = [engine.budget, *([sum(a.prompt for a in asked)] if "limit" in changes else [])]
    shares = []
    for cost, budget in product(costs, budgets):
        changed = replace(engine, limit=limit, budget=budget, decode=cost, fixed=max(single - cost, 0.0))
        shares.append(1.0 - mean_ms(changed, wanted) / base)
    low, high = min(shares), max(shares)
    return max(low - error, 0.0), min(high + error * (1 - high), 1.0)


def _seen(tables: Tables) -> float:
    """Return the recorded mean time from submission to the last own iteration, in milliseconds."""
    last = tables["turns"].join(tables["iterations"], on="iteration")
    ends = last.group_by("request").agg(done=pl.col("end_ns").max())
    both = tables["requests"].join(ends, on="request")
    return float((both["done"] - both["submitted_ns"]).mean()) / MS  # type: ignore[arg-type]
