"""The account of an engine's requests: latencies by percentile, the mean ledger, the slowest requests."""

from __future__ import annotations

import polars as pl

from fathom.analysis.serving.entries import Entry
from fathom.analysis.serving.ledger import TABLES, request_ledger
from fathom.analysis.serving.results import IterationKind, Percentiles, RequestEntry, Serving, SlowRequest
from fathom.sounding import Store
from fathom.units import NS_PER_MS, NS_PER_S

SLOWEST = 5
BEYOND = 2  # requests beyond a percentile, at least
FAILED = 400
_PHASES = (Entry.PREFILL_PHASE.value, Entry.DECODE_PHASE.value, Entry.RECOMPUTE.value)


def serving_tables(store: Store) -> dict[str, pl.DataFrame] | None:
    """Return the tables of the first rank that answered requests; None if none did."""
    for rank in store.ranks:
        if store.table("requests", rank).limit(1).collect().height:
            return {name: store.table(name, rank).collect() for name in TABLES}
    return None


def requests_account(tables: dict[str, pl.DataFrame]) -> Serving:
    """Return the account of the requests in these tables."""
    requests, iterations = tables["requests"], tables["iterations"]
    ledger = request_ledger(tables)
    low, high = int(requests["start_ns"].min()), int(requests["end_ns"].max())  # type: ignore[arg-type]
    seconds = max(high - low, 1) / NS_PER_S
    tokens = _sum(requests["generated"])
    timed = _timed(requests)
    share = (iterations["kv_used"] / iterations["kv_total"]).max() if iterations.height else None
    drafted, accepted = _drafts(tables["turns"])
    return Serving(
        requests=requests.height,
        failed=int((requests["status"] >= FAILED).sum()),
        seconds=seconds,
        tokens_per_s=None if tokens is None else tokens / seconds,
        requests_per_s=requests.height / seconds,
        busy=_busy(tables, seconds),
        ttft_ms=percentiles(timed["first_ms"]),
        tpot_ms=percentiles(timed["token_ms"]),
        e2e_ms=percentiles(timed["ms"]) or Percentiles(0, 0.0, 0.0, None, None, 0.0),
        ledger=_entries(ledger, requests.height),
        iterations=_kinds(tables),
        slowest=_slowest(timed, ledger, tables),
        prompt_tokens=_sum(requests["prompt"]),
        cached_tokens=_sum(requests["cached"]),
        generated_tokens=tokens,
        recomputed_tokens=_recomputed(tables),
        preemptions=_preemptions(tables),
        waiting_max=iterations["waiting"].max(),  # type: ignore[arg-type]
        kv_peak=share,  # type: ignore[arg-type]
        drafted_tokens=drafted,
        accepted_tokens=accepted,
    )


def _sum(values: pl.Series) -> int | None:
    """Return the sum of a column; None if no request has a value."""
    return int(values.sum()) if values.count() else None


def from_spans(tables: dict[str, pl.DataFrame]) -> bool:
    """Return whether the requests have stages of imported spans instead of iterations."""
    return not tables["request_spans"].filter(what=Entry.UNKNOWN.value).is_empty()


def _busy(tables: dict[str, pl.DataFrame], seconds: float) -> float | None:
    """Return the share of time in which the engine worked; None if spans have neither phase."""
    if not from_spans(tables):
        rows = tables["iterations"]
        return min(float((rows["end_ns"] - rows["start_ns"]).sum()) / NS_PER_S / seconds, 1.0)
    phases = tables["request_spans"].filter(pl.col("what").is_in(_PHASES)).sort("start_ns")
    if phases.is_empty():
        return None
    reached = phases["end_ns"].cum_max().shift(1)
    begun = pl.DataFrame([phases["start_ns"], reached.alias("reached")]).max_horizontal()
    worked = (phases["end_ns"] - begun).clip(lower_bound=0).sum()
    return min(float(worked) / NS_PER_S / seconds, 1.0)


def _drafts(turns: pl.DataFrame) -> tuple[int, int]:
    """Return the tokens that decodes read beyond one each, which were drafted, and how many were accepted."""
    verified = turns.filter(pl.col("tokens") > 1, phase="decode")
    drafted, accepted = verified["tokens"] - 1, (verified["generated"] - 1).clip(lower_bound=0)
    return int(drafted.sum()), int(accepted.sum())


def _recomputed(tables: dict[str, pl.DataFrame]) -> int | None:
    again = tables["turns"].filter(phase="recompute")["tokens"]
    return None if from_spans(tables) else int(again.sum())


def _preemptions(tables: dict[str, pl.DataFrame]) -> int | None:
    """Return how often the engine discarded a request's tokens; None if spans show no preemption."""
    imported = from_spans(tables)
    count = tables["request_spans"].filter(what="preempted" if imported else "preempt").height
    return count or (None if imported else 0)


def _timed(requests: pl.DataFrame) -> pl.DataFrame:
    """Add the latencies of each request in milliseconds."""
    first = pl.coalesce("sent_ns", "token_ns")
    more = pl.when(pl.col("generated") > 1).then(pl.col("generated") - 1)
    return requests.with_columns(
        ms=(pl.col("end_ns") - pl.col("start_ns")) / NS_PER_MS,
        first_ms=(first - pl.col("start_ns")) / NS_PER_MS,
        token_ms=(pl.col("end_ns") - first) / more / NS_PER_MS,
    )


def percentiles(values: pl.Series) -> Percentiles | None:
    """Return the percentiles of the values that are known; None without any."""
    known = values.drop_nulls()
    if known.is_empty():
        return None
    n = len(known)
    of = {q: float(known.quantile(q, "linear")) for q in (0.5, 0.9, 0.99)}  # type: ignore[arg-type]
    p90, p99 = (of[q] if n * (1 - q) >= BEYOND - 1e-9 else None for q in (0.9, 0.99))
    return Percentiles(n, float(known.mean()), of[0.5], p90, p99, float(known.max()))  # type: ignore[arg-type]


def _entries(ledger: pl.DataFrame, n: int) -> list[RequestEntry]:
    """Return the entries in the order of a request's life; a request without an entry counts as zero."""
    total = float(ledger["ms"].sum()) or 1.0
    rows = []
    for entry in Entry:
        mine = ledger.filter(entry=entry.value)
        if mine.is_empty():
            continue
        each = pl.concat([mine["ms"], pl.zeros(n - mine.height, eager=True)])
        spread = percentiles(each)
        assert spread is not None
        shown = (spread.p50, spread.p90, spread.max)
        first = float(mine["first_ms"].sum()) / n
        rows.append(RequestEntry(entry.value, spread.mean, float(mine["ms"].sum()) / total, *shown, first))
    return rows


def _kinds(tables: dict[str, pl.DataFrame]) -> list[IterationKind]:
    per = tables["turns"].group_by("iteration").agg(requests=pl.len(), tokens=pl.col("tokens").sum())
    rows = tables["iterations"].with_columns(ms=(pl.col("end_ns") - pl.col("start_ns")) / NS_PER_MS)
    all_ms = rows["ms"].sum() or 1.0
    of_kind = (
        rows.join(per, on="iteration", how="left")
        .group_by("kind")
        .agg(
            n=pl.len(),
            share=pl.col("ms").sum() / all_ms,
            p50=pl.col("ms").median(),
            requests=pl.col("requests").mean(),
            tokens=pl.col("tokens").mean(),
        )
    )
    return [IterationKind(*row) for row in of_kind.sort("share", descending=True).iter_rows()]


def _slowest(timed: pl.DataFrame, ledger: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> list[SlowRequest]:
    rows = timed.sort("ms", descending=True).head(SLOWEST)
    result = []
    for row in rows.iter_rows(named=True):
        facts = {name: row[name] for name in ("request", "ms", "first_ms", "prompt", "generated")}
        entire, first = (_entries_of(ledger, row["request"], column) for column in ("ms", "first_ms"))
        behind, tokens = _ahead(row["request"], row["submitted_ns"], row["end_ns"], tables)
        result.append(
            SlowRequest(**facts, entries=entire, first_entries=first, behind=behind, behind_tokens=tokens)
        )
    return result


def _entries_of(ledger: pl.DataFrame, request: int, column: str) -> dict[str, float]:
    """Return the milliseconds of one request by entry, largest first."""
    mine = ledger.filter(pl.col("request") == request, pl.col(column) > 0).sort(column, descending=True)
    return dict(zip(mine["entry"].to_list(), mine[column].to_list(), strict=True))


def _ahead(request: int, submitted_ns: int, end_ns: int, tables: dict[str, pl.DataFrame]) -> tuple[int, int]:
    """Return the other requests whose prompts were read while this one was in the queue, and their tokens."""
    turns = tables["turns"].join(
        tables["iterations"].select("iteration", "start_ns", "end_ns"), on="iteration"
    )
    own = turns.filter(request=request)["start_ns"].min()
    until = end_ns if own is None else own
    others = turns.filter(
        pl.col("request") != request,
        pl.col("phase") != "decode",
        pl.col("end_ns") > submitted_ns,
        pl.col("start_ns") < until,
    )
    return others["request"].n_unique(), int(others["tokens"].sum())
