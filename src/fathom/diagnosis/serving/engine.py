"""A model of the recorded engine, fitted to its iterations, which replays requests under the same scheduler.

An iteration takes a fixed time, a time per prompt token and per decoding request, and a time that grows with
the square of its prompt tokens, where attention is dense over the batch. The scheduler is first come, first
served, with the recorded limits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import polars as pl

from fathom.units import NS_PER_MS

Tables = dict[str, pl.DataFrame]
FULL = 0.75  # of the KV cache: a longer prompt may not fit into the rest
PARTS = 4  # of the recording, whose speeds are compared
VARIED = 0.5  # of the most prompt tokens in an iteration: a smaller range shows no square
FEWEST_PROMPTS, DRAWS, LOWEST = 10, 200, 0.05  # prompts that show the shared part; samples; its quantile
NEAR = 8  # decodes before and after a prefill, whose median is the decode that it is compared with
QUICKEST = 0.25  # of the iterations, between interruptions
ROUNDS, CLOSE = 50, 1e-3  # of a fit; error, in median iterations, that counts as none
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
    blocks: float = inf  # of the KV cache
    block: int = 1  # tokens of a block
    again: float = inf  # tokens that a preempted request reads again

    def blocks_of(self, tokens: int) -> int:
        """Return the blocks that hold so many tokens."""
        return -(-tokens // self.block)

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
            again=pl.col("tokens").filter(pl.col("phase") == "recompute").mean(),
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
    engine = Engine(fixed, token, each, int(rows["n"].max()), int(total.max()), square)  # type: ignore[arg-type]
    return _limited(engine, rows)


def _limited(engine: Engine, rows: pl.DataFrame) -> Engine:
    """Return the engine with the blocks of its cache, if that was ever full while requests waited.

    If the size of a block is not known, the requests that fit are those that did on average.
    """
    full = rows.filter(pl.col("waiting") > 0, pl.col("kv_used") >= FULL * pl.col("kv_total"))
    if not full.height:
        return engine
    block, again = full["kv_block"].max(), rows["again"].mean()
    if block is None:
        return replace(engine, limit=max(round(float(full["n"].mean())), 1))  # type: ignore[arg-type]
    size = {"blocks": int(full["kv_total"].max()), "block": int(block)}  # type: ignore[arg-type]
    return replace(engine, **size, **({} if again is None else {"again": max(round(again), 1)}))  # type: ignore[arg-type]


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
    """Return coefficients of the QUICKEST iterations of each kind, none negative, scaled to the time of all.

    Interruptions only lengthen iterations: a mean would follow those that another program interrupted.
    """
    kept = list(range(matrix.shape[1]))
    while True:
        solved = _quantile_fit(matrix[:, kept], took)
        if (solved >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(np.argmin(solved * matrix[:, kept].mean(axis=0))))
    result = np.zeros(matrix.shape[1])
    result[kept] = np.maximum(solved, 0.0)
    result *= took.sum() / max(float((matrix @ result).sum()), 1e-9)
    return [float(value) for value in result]


def _quantile_fit(matrix: np.ndarray, took: np.ndarray) -> np.ndarray:
    """Fit the QUICKEST quantile of the iterations' times, by iteratively reweighted least squares."""
    weights, least = np.ones(len(took)), CLOSE * float(np.median(took)) + 1e-9
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        solved, *_ = np.linalg.lstsq(matrix * root[:, None], took * root, rcond=None)
        over = took - matrix @ solved
        weights = np.where(over > 0, QUICKEST, 1 - QUICKEST) / np.maximum(np.abs(over), least)
    return np.asarray(solved)


def drift(rows: pl.DataFrame, engine: Engine) -> float:
    """Return how far the speed of a part of the recording is from the mean: other runs differ as much."""
    expected = np.array([engine.took(*row) for row in rows.select("prompt", "decode").iter_rows()])
    took, model = (np.array_split(of, PARTS) for of in (periods_ms(rows), expected))
    away = [abs(t.sum() / m.sum() - 1.0) for t, m in zip(took, model, strict=True) if m.sum() > 0]
    return float(min(max(away, default=0.0), SLOWEST))


def replayed(engine: Engine, asked: list[Asked]) -> list[float]:
    """Return when each request's last token is generated (ms). `asked` is in order of submission."""
    batch, coming, waiting = Batch(engine), deque(enumerate(asked)), deque[State]()
    now, done = asked[0].at, [0.0] * len(asked)
    while coming or waiting or batch.states:
        while coming and coming[0][1].at <= now:
            number, request = coming.popleft()
            waiting.append(State(number, request.prompt, request.generate, request.prompt))
        if not waiting and not batch.states:
            now = coming[0][1].at
            continue
        decoding = batch.grow(waiting)
        batch.admit(waiting)
        now += engine.took(batch.read(engine.budget - decoding), decoding)
        for number in batch.generate():
            done[number] = now
    return done


@dataclass
class State:
    """A request in the replay: tokens left to read and to generate, and tokens in the cache."""

    number: int
    left: int
    generate: int
    tokens: int


class Batch:
    """The requests in the engine, in the order of their admission, and the blocks that they hold."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.states, self.used, self.full = engine, list[State](), 0, False

    def grow(self, waiting: deque[State]) -> int:
        """Give each decode room for a token, and return their number. The last to come makes room."""
        self.full, at = False, 0
        while at < len(self.states):
            more = self._more(self.states[at])
            if self.used + more > self.engine.blocks and len(self.states) > 1:
                self._preempt(waiting)  # maybe this one
                continue
            self.used += more
            self.states[at].tokens += not self.states[at].left
            at += 1
        return sum(not state.left for state in self.states)

    def admit(self, waiting: deque[State]) -> None:
        """Take requests from the queue, while their tokens fit; none after a preemption."""
        while waiting and not self.full and len(self.states) < self.engine.limit:
            blocks = self.engine.blocks_of(waiting[0].tokens)
            if self.states and self.used + blocks > self.engine.blocks:
                return
            self.used += blocks
            self.states.append(waiting.popleft())

    def read(self, room: int) -> int:
        """Read prompts within the limit of tokens, and return their number."""
        left = room
        for state in self.states:
            part = min(state.left, max(left, 0))
            state.left -= part
            left -= part
        return room - left

    def generate(self) -> list[int]:
        """Generate a token for each request that has been read, and return those that are done."""
        ready = [state for state in self.states if not state.left]
        for state in ready:
            state.generate -= 1
        done = [state for state in ready if state.generate <= 0]
        self.used -= sum(self.engine.blocks_of(state.tokens) for state in done)
        self.states = [state for state in self.states if state.left or state.generate > 0]
        return [state.number for state in done]

    def _more(self, state: State) -> int:
        """Return the blocks that a request's next token needs."""
        return (
            0 if state.left else self.engine.blocks_of(state.tokens + 1) - self.engine.blocks_of(state.tokens)
        )

    def _preempt(self, waiting: deque[State]) -> None:
        state, self.full = self.states.pop(), True
        self.used -= self.engine.blocks_of(state.tokens)
        state.tokens += not state.left  # it reads the last token that it generated too
        state.left = int(min(self.engine.again, state.tokens))
        waiting.appendleft(state)


def mean_ms(engine: Engine, asked: list[Asked]) -> float:
    """Replay the requests, and return their mean time in the engine in milliseconds."""
    done = replayed(engine, asked)
    return float(np.mean([end - request.at for end, request in zip(done, asked, strict=True)]))
