"""Replays of the recorded requests with one cost removed: what the mean request would save.

A request passes through the event loop, which takes one at a time; the engine (`engine.py`); and the event
loop again. The replay keeps the arrivals and the recorded work, and changes one thing: the time of spans with
one name, a limit, the prompts, or the number of engines. Where the recording leaves something open, both ends
are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import hypot, inf
from statistics import median

import numpy as np
import polars as pl

from fathom.diagnosis.serving.engine import (
    Asked,
    Engine,
    Tables,
    drift,
    engine_of,
    iterations_of,
    parts_of,
    periods_ms,
    replayed,
    shared,
    split,
)
from fathom.diagnosis.serving.speculation import drafts_of
from fathom.units import NS_PER_MS

BETWEEN_RUNS = 0.1  # of the time in the engine: two runs of one server differ by it
NEXT = 1.96 * 2**0.5  # standard errors by which the means of two runs differ, in 19 of 20 cases
HOLDING = ("tokenise", "detokenise")
BLOCK = 256  # tokens that an engine shares at a time, if it does not say: SGLang 1, transformers up to 256
SMALL = 16  # tokens of a small block
FEWEST_SIZES = 3  # of batches, which show the cost of a further decode
CHUNK = 64  # prompt tokens per iteration, with chunked prefill
AS_RECORDED, TWO, ALONE = 1, 2, 0  # engines; ALONE is one for each request


@dataclass(frozen=True)
class Change:
    """The change of a replay."""

    spans: str = ""  # remove the time of spans of this name
    limit: bool = False  # no limit of requests per batch
    repeated: int = 0  # prompts without whole blocks of tokens that earlier ones began with
    attends: bool = False  # the work of a prompt is attention, which reads the shared tokens all the same
    chunked: bool = False  # at most CHUNK prompt tokens per iteration
    engines: bool = False  # more of them
    plain: bool = False  # no drafts
    filled: bool = False  # the blocks of the cache: more requests fit


class Spans:
    """The union of the spans with the same name."""

    def __init__(self, tables: Tables, what: str) -> None:
        rows = tables["request_spans"].filter(what=what).sort("start_ns")
        starts, ends = (rows[name].to_numpy() / NS_PER_MS for name in ("start_ns", "end_ns"))
        ends = np.maximum.accumulate(ends) if len(ends) else ends
        first = np.append(True, starts[1:] > ends[:-1]) if len(starts) else np.zeros(0, bool)
        self._starts, self._ends = starts[first], ends[np.append(first[1:], True)] if len(ends) else ends
        self._before = np.append(0.0, np.cumsum(self._ends - self._starts))

    def within(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the milliseconds of the spans between each pair of times."""
        return self._until(high) - self._until(np.minimum(low, high))

    def _until(self, at: np.ndarray) -> np.ndarray:
        place = np.searchsorted(self._starts, at, side="right")
        last = np.maximum(place - 1, 0)
        over = np.maximum(self._ends[last] - at, 0.0) if len(self._ends) else 0.0
        return self._before[place] - np.where(place > 0, over, 0.0)


class Replay:
    """The recorded requests, in order of submission. Times are in milliseconds."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.rows = tables, iterations_of(tables)
        last = tables["turns"].join(tables["iterations"], on="iteration")
        ends = last.group_by("request").agg(done_ns=pl.col("end_ns").max())
        counted = tables["turns"].filter(pl.col("generated") > 0).group_by("request").agg(turns=pl.len())
        requests = tables["requests"].join(ends, on="request").join(counted, on="request", how="left")
        self.requests = requests.sort("submitted_ns")
        times = (self.requests[f"{name}_ns"].to_numpy() for name in ("start", "submitted", "done", "end"))
        self.arrival, self.submitted, self.done, self.end = (time / NS_PER_MS for time in times)
        self.engine = engine_of(self.rows)
        self.drafts = drafts_of(self.rows, periods_ms(self.rows))
        self.one_by_one = self.engine.limit == 1 and bool((self.submitted[1:] >= self.done[:-1]).all())
        freed = np.append(-np.inf, (self.done if self.one_by_one else self.submitted)[:-1])
        self.begun = np.minimum(
            np.maximum(self.arrival, freed), self.submitted
        )  # the loop got to the request
        self.seen = float((self.end - self.arrival).mean())

    def saves(self, change: Change) -> tuple[float, float, float]:
        """Return the mean request's saving at the recorded speed, and its range over runs.

        The machine's speed drifts with and without the change. Beyond that, runs differ by BETWEEN_RUNS, and
        the requests of another run by the time of the spans.
        """
        base, forms = self.mean(Change(), self.engine) or 1.0, self._forms(change)
        likely = median(max(self.seen * (1.0 - self.mean(*form) / base), 0.0) for form in forms)
        away = drift(self.rows, self.engine)
        pairs = product(forms, (1 - away, 1 + away))
        ends = [end for form, speed in pairs for end in self._ends(form, speed)]
        noise = self.seen * (self.mean(Change(), self.engine, speed=1 + BETWEEN_RUNS) / base - 1.0)
        low, high = max(min(ends), -noise), max(*ends, 0.0)
        middle, others = min(max(likely, low), high), self._others(change)
        low, high = middle - hypot(middle - low, others), middle + hypot(high - middle, others)
        return middle, low, min(high, self.seen)

    def _forms(self, change: Change) -> list[tuple[Change, Engine, int]]:
        """Return the replays that the recording allows: what it leaves open has two ends."""
        many = (TWO, ALONE) if change.engines else (AS_RECORDED,)
        block: int | None = self.rows["kv_block"].max()  # type: ignore[assignment]
        most, fewest = (replace(change, repeated=block or size) for size in (change.repeated, BLOCK))
        ends = [most, replace(fewest, attends=True)] if change.repeated else [change]
        return list(product(ends, self._engines(change), many))

    def _others(self, change: Change) -> float:
        """Return how far the mean time of the spans may be from this one, where other requests are asked."""
        spent = sum(self._spent(change), np.zeros(len(self.arrival)))
        return NEXT * float(spent.std()) / len(spent) ** 0.5

    def _spent(self, change: Change) -> tuple[np.ndarray, np.ndarray]:
        """Return the time of the spans before and after the engine, by request."""
        spans = Spans(self.tables, change.spans)
        return spans.within(self.begun, self.submitted), spans.within(self.done, self.end)

    def _ends(self, form: tuple[Change, Engine, int], speed: float) -> list[float]:
        """Return the mean request's saving if both runs have this speed and differ a little."""
        before = self.mean(Change(), self.engine, speed=speed) or 1.0
        after = (self.mean(*form, speed * run) for run in (1 - BETWEEN_RUNS, 1 + BETWEEN_RUNS))
        return [self.seen * (1.0 - mean / before) for mean in after]

    def _engines(self, change: Change) -> list[Engine]:
        """Return the engines that the recording allows: what is unknown has two ends."""
        if change.spans in HOLDING:  # Python may hold the interpreter, which the engine needs, or not
            low = self.rows["start_ns"].to_numpy() / NS_PER_MS
            lengthened = Spans(self.tables, change.spans).within(low, low + periods_ms(self.rows))
            return [self.engine, engine_of(self.rows, lengthened)]
        if change.chunked:
            return [replace(self.engine, budget=min(self.engine.budget, CHUNK))]
        if change.plain:
            return [engine_of(self.rows, self.drafts.spare_ms)]
        if change.repeated:  # the few tokens that are left may cost what a decode does
            return [self.engine, replace(self.engine, fixed=self._decodes()[1], decode=0.0)]
        if change.filled:
            small = min(self.engine.block, SMALL)
            blocks = self.engine.blocks * self.engine.block // small
            return [
                replace(engine, limit=len(self.arrival), block=small, blocks=blocks)
                for engine in self._more()
            ]
        if not change.limit:
            return [self.engine]
        known = self.engine.limit > 1
        engines = self._more() if known else [split(self.rows, part) for part in (shared(self.rows), 1.0)]
        budgets = (self.engine.budget, int(self.requests["prompt"].sum()))
        return [
            replace(engine, limit=len(self.arrival), blocks=inf, budget=budget)
            for engine, budget in product(engines, budgets)
        ]

    def _more(self) -> list[Engine]:
        """Return engines for more decodes than any batch had: as fitted, at its dearest, at its cheapest.

        These are as in the parts of the recording in which a further decode cost most and least. If the
        batches are too alike to say, it is as dear as now, or free.
        """
        rows = self.rows.filter(pl.col("prompt") == 0)
        usual, now = self._decodes()
        shares = [1.0, 0.0]
        parts = parts_of(rows)
        if parts and all(part["decode"].n_unique() >= FEWEST_SIZES for part in parts):
            shares = [fit.decode * usual / fit.took(0, usual) for fit in map(engine_of, parts)]
        ends = (max(shares), min(shares))
        return [
            self.engine,
            *(replace(self.engine, fixed=now * (1 - share), decode=now * share / usual) for share in ends),
        ]

    def _decodes(self) -> tuple[float, float]:
        """Return the usual number of decodes without prompts, and the milliseconds that they take."""
        rows = self.rows.filter(pl.col("prompt") == 0)
        usual = float(rows["decode"].mean() or 1.0)  # type: ignore[arg-type]
        return usual, self.engine.took(0, usual)

    def mean(self, change: Change, engine: Engine, engines: int = AS_RECORDED, speed: float = 1.0) -> float:
        """Replay, and return the mean time of a request."""
        spent_before, spent_after = self._spent(change)
        before = self.submitted - self.begun - spent_before
        after = self.end - self.done - spent_after
        submitted = self.arrival + before if self.one_by_one else _one_at_a_time(self.arrival, before)
        done = _spread(engine.slowed(speed), self._asked(submitted, change), engines or len(submitted))
        return float(np.mean(done + after - self.arrival))

    def _asked(self, submitted: np.ndarray, change: Change) -> list[Asked]:
        shared = pl.col("repeated") // change.repeated * change.repeated if change.repeated else 0
        spare = pl.max_horizontal("cached", shared)
        if change.attends:
            spare = pl.max_horizontal("cached", spare**2 / pl.col("prompt"))
        # With drafts, one decode may generate several tokens.
        decodes = "turns" if self.drafts.drafted and not change.plain else "generated"
        read = self.requests.select(pl.max_horizontal(pl.col("prompt") - spare, 1), decodes)
        return [
            Asked(float(at), int(prompt), max(int(n or 1), 1))
            for at, (prompt, n) in zip(submitted, read.iter_rows(), strict=True)
        ]


def _one_at_a_time(arrival: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return when each piece of work is done, if one is done after the other in this order."""
    free, done = -np.inf, []
    for at, length in zip(arrival, work, strict=True):
        free = max(free, at) + length
        done.append(free)
    return np.array(done)


def _spread(engine: Engine, asked: list[Asked], engines: int) -> np.ndarray:
    """Replay the requests on several engines, which take them in turn."""
    done = np.zeros(len(asked))
    for number in range(min(engines, len(asked))):
        done[number::engines] = replayed(engine, asked[number::engines])
    return done
