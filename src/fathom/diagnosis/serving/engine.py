"""A model of the recorded engine, fitted to its iterations, which replays requests under the same scheduler.

An iteration takes a fixed time, a time per prompt token and per decoding request, and a time that grows with
the square of its prompt tokens, where attention is dense over the batch. The scheduler is first come, first
served, with the recorded limits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fathom.units import NS_PER_MS

Tables = dict[str, pl.DataFrame]
FULL = 0.75  # of the KV cache: a longer prompt may not fit into the rest
PARTS = 4  # of the recording, whose speeds are compared
VARIED = 0.5  # of the most prompt tokens in an iteration: a smaller range shows no square
FEWEST_PROMPTS, DRAWS, LOWEST = 10, 200, 0.05  # prompts that show the shared part; samples; its quantile
NEAR = 8  # decodes before and after a prefill, whose median is the decode that it is compared with
SLOWEST = 0.5  # of the mean: parts that differ more say nothing about speed


@dataclass(frozen=True)
class Engine:
    """Milliseconds of an iteration: `fixed` + `token` · p + `square` · p² + `decode` per decoding request."""

    fixed: float
    token: float
    decode: float
    limit: int  # requests per batch
    budget: int  # tokens per batch
    square: float = 0.0

    def took(self, read: float, decoding: float) -> float:
        """Return the milliseconds of an iteration that reads prompt tokens and decodes for some requests."""
        return self.fixed + self.token * read + self.square * read**2 + self.decode * decoding

    def slowed(self, by: float) -> Engine:
        """Return the engine with iterations that take `by` times as long."""
        times = {name: by * getattr(self, name) for name in ("fixed", "token", "decode", "square")}
        return replace(self, **times)


@dataclass(frozen=True)
class Asked:
    """One request: when it was submitted (ms), the prompt tokens to read, the tokens to generate."""

    at: float
    prompt: int
    generate: int


def iterations_of(tables: Tables) -> pl.DataFrame:
    """Return the iterations in order, with the requests, prompt tokens and decodes in each.

    `drafted` counts the tokens that decodes read beyond one for each request, and `made` those they generate.

    `active` says that a request of this or an earlier one goes on after it.
    """
    decodes = pl.col("phase") == "decode"
    counts = (
        tables["turns"]
        .group_by("iteration")
        .agg(
            n=pl.len(),
            prompt=pl.col("tokens").filter(~decodes).sum(),
            decode=decodes.sum(),
            drafted=(pl.col("tokens").filter(decodes) - 1).clip(lower_bound=0).sum(),
            made=pl.col("generated").filter(decodes).sum(),
        )
    )
    stays = (
        tables["turns"]
        .group_by("request")
        .agg(first=pl.col("iteration").min(), last=pl.col("iteration").max())
    )
    rows = tables["iterations"].join(counts, on="iteration").sort("start_ns")
    begun, ended = (np.sort(stays[name].to_numpy()) for name in ("first", "last"))
    at = rows["iteration"].to_numpy()
    active = np.searchsorted(begun, at, "right") > np.searchsorted(ended, at, "right")
    return rows.with_columns(active=pl.Series(active))


def engine_of(rows: pl.DataFrame, spare_ms: np.ndarray | float = 0.0) -> Engine:
    """Fit the engine to its iterations, less the time in them that something else took."""
    prompt, decode = rows["prompt"].to_numpy().astype(float), rows["decode"].to_numpy()
    columns = [np.ones(rows.height), prompt, decode]
    if prompt.any() and np.ptp(prompt[prompt > 0]) > VARIED * prompt.max():
        columns.append(prompt**2)
    fitted = _fitted(np.column_stack(columns), np.maximum(periods_ms(rows) - spare_ms, 0.0))
    fixed, token, each, square = [*fitted, 0.0][:4]
    total = rows["prompt"] + rows["decode"]
    return Engine(fixed, token, each, _limit(rows), int(total.max()), square)  # type: ignore[arg-type]


def _limit(rows: pl.DataFrame) -> int:
    """Return the requests that fit into a batch: the most that did, or the mean while the cache was full."""
    full = rows.filter(pl.col("waiting") > 0, pl.col("kv_used") >= FULL * pl.col("kv_total"))
    fits = full["n"].mean() if full.height else rows["n"].max()
    return max(round(float(fits)), 1)  # type: ignore[arg-type]


def parts_of(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the iterations in PARTS of about the same number, in order."""
    return [part for of in np.array_split(np.arange(rows.height), PARTS) if (part := rows[of]).height]


def split(rows: pl.DataFrame, shared: float) -> Engine:
    """Fit an engine that never decoded for two requests, if `shared` of a decode serves all of a batch."""
    decodes = rows["prompt"].to_numpy() == 0
    took, prompt = periods_ms(rows), rows["prompt"].to_numpy()[~decodes].astype(float)
    each = float(took[decodes].mean()) if decodes.any() else 0.0
    rest = np.maximum(took[~decodes] - shared * each, 0.0)
    token = float(rest.sum() / prompt.sum()) if prompt.any() else 0.0
    plain = engine_of(rows)
    return Engine(shared * each, token, (1 - shared) * each, plain.limit, plain.budget)


def shared(rows: pl.DataFrame) -> float:
    """Return the least share of a decode that serves all of a batch, for an engine that had no batches.

    A prefill takes the shared part too: it is what prompts would take without tokens, in decodes of about the
    same time, because the machine's speed may change. Attention, which grows faster than the prompt, makes it
    look smaller. 0 if prompts are too few or too alike to say.
    """
    decodes, took = rows["prompt"].to_numpy() == 0, periods_ms(rows)
    prompt = rows["prompt"].to_numpy()[~decodes].astype(float)
    if len(prompt) < FEWEST_PROMPTS or not decodes.any() or np.ptp(prompt) <= VARIED * prompt.max():
        return 0.0
    before = np.cumsum(decodes)[~decodes]
    near = [np.median(took[decodes][max(at - NEAR, 0) : at + NEAR]) for at in before]
    relative = took[~decodes] / np.maximum(near, 1e-9)
    places = np.random.default_rng(1).integers(len(prompt), size=(DRAWS, len(prompt)))
    lines = [np.polyfit(prompt[of], relative[of], 1) for of in places if np.ptp(prompt[of])]
    return float(np.clip(np.quantile([line[1] for line in lines], LOWEST), 0.0, 1.0))


def periods_ms(rows: pl.DataFrame) -> np.ndarray:
    """Return the time from each iteration's start to the next one's, or to its end if no request goes on.

    Pauses longer than the iteration are not its own.
    """
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    following = np.where(rows["active"].to_numpy(), np.append(starts[1:], ends[-1:]), ends)
    return np.minimum(following - starts, 2 * (ends - starts)) / NS_PER_MS


def _fitted(matrix: np.ndarray, took: np.ndarray) -> list[float]:
    """Return coefficients of the least squared error, none negative, scaled to the time of all."""
    kept = list(range(matrix.shape[1]))
    while True:
        solved, *_ = np.linalg.lstsq(matrix[:, kept], took, rcond=None)
        if (solved >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(np.argmin(solved * matrix[:, kept].mean(axis=0))))
    result = np.zeros(matrix.shape[1])
    result[kept] = np.maximum(solved, 0.0)
    result *= took.sum() / max(float((matrix @ result).sum()), 1e-9)
    return [float(value) for value in result]


def drift(rows: pl.DataFrame, engine: Engine) -> float:
    """Return how far the speed of a part of the recording is from the mean: other runs differ as much."""
    expected = np.array([engine.took(*row) for row in rows.select("prompt", "decode").iter_rows()])
    took, model = (np.array_split(of, PARTS) for of in (periods_ms(rows), expected))
    away = [abs(t.sum() / m.sum() - 1.0) for t, m in zip(took, model, strict=True) if m.sum() > 0]
    return float(min(max(away, default=0.0), SLOWEST))


def replayed(engine: Engine, asked: list[Asked]) -> list[float]:
    """Return when each request's last token is generated (ms). `asked` is in order of submission."""
    coming, reading, decoding = deque(enumerate(asked)), deque[list[float]](), list[list[float]]()
    now, done = asked[0].at, [0.0] * len(asked)
    while coming or reading or decoding:
        while coming and coming[0][1].at <= now:
            number, request = coming.popleft()
            reading.append([number, request.prompt, request.generate])
        if not reading and not decoding:
            now = coming[0][1].at
            continue
        read = _read(reading, engine, len(decoding))
        now += engine.took(read, len(decoding))
        decoding += [reading.popleft() for _ in range(len(reading)) if reading and reading[0][1] <= 0]
        for state in decoding:
            state[2] -= 1
            done[int(state[0])] = now
        decoding = [state for state in decoding if state[2] > 0]
    return done


def mean_ms(engine: Engine, asked: list[Asked]) -> float:
    """Replay the requests, and return their mean time in the engine in milliseconds."""
    done = replayed(engine, asked)
    return float(np.mean([end - request.at for end, request in zip(done, asked, strict=True)]))


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
