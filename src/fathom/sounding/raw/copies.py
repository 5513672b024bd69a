"""Place the calls of copies from pageable memory, which CUPTI's records of device work alone do not show."""

from __future__ import annotations

import polars as pl

from fathom.units import MIB

DIRECTION = "HtoD pageable"
# CUDA stages pageable memory in pieces of pinned memory. A copy of one piece returns at once and waits in its
# stream; a larger one returns with its last piece, once the stream has come to the first. On an H200, 512 KiB
# are one piece (copied at 44 GB/s) and 2 MiB are several (10 GB/s, the rate of the host).
PIECE = MIB
DRAINED_NS = 100_000  # a copy that begins this soon after the stream's last work was waiting for it
USUAL_NS = 7_000  # of a call that launches

CALL = ("phase", "burst", "correlation")
THREAD = ("phase", "burst", "thread")
STREAM = ("phase", "burst", "device", "stream")
CALLED, BEGUN = "start_ns", "begun"


def waiting(
    launches: pl.DataFrame, kernels: pl.DataFrame, stacks: pl.DataFrame, waits: pl.DataFrame
) -> pl.DataFrame:
    """Return the launches, with the calls of these copies from where they began to wait to the copy's end.

    A call is wrong if it returned before its copy began, although the next call of its thread began later. If
    the copy began as soon as the work before it had ended, its call waited since the sampled stack has been
    the same, but not since before the call or wait that precedes it. Otherwise the host came late, and only
    the end is replaced.
    """
    copies = _large(kernels)
    if copies.is_empty():
        return launches
    rows = launches.with_row_index("row")
    calls = _freed(_wrong(rows, copies))
    wrong = calls.filter("wrong")
    if wrong.is_empty():
        return launches
    placed = _starts(wrong, kernels, stacks, waits)
    times = _times(calls.join(placed, on="row", how="left", maintain_order="left"))
    return (
        rows.join(times, on="row", how="left", maintain_order="left")
        .with_columns(start_ns=pl.coalesce("at", CALLED), end_ns=pl.coalesce("until", "end_ns"))
        .select(launches.columns)
    )


def _large(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return begin, end and stream of each copy of several pieces, by its call."""
    large = kernels.filter(pl.col("direction") == DIRECTION, pl.col("bytes") > PIECE)
    known = large.drop_nulls(["correlation", CALLED, "end_ns"])
    return known.group_by(CALL, maintain_order=True).agg(
        pl.col("device", "stream").first(), begun=pl.col(CALLED).min(), ended=pl.col("end_ns").max()
    )


def _wrong(rows: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Return the calls in order, with their copies, and whether they are wrong.

    Of neighbours, the times of the second say nothing about the first. So a sequence of them is judged by the
    next call (`limit`), and by whether its copies are in the order of the calls.
    """
    known = rows.drop_nulls(["correlation", CALLED, "end_ns"])
    calls = known.join(copies, on=CALL, how="left", nulls_equal=True).sort(*THREAD, "correlation")
    early = (pl.col("end_ns") <= pl.col(BEGUN)).fill_null(value=False)
    calls = calls.with_columns(early=early).with_columns(
        limit=pl.when(~pl.col("early")).then(CALLED).backward_fill().over(THREAD)
    )
    sequence = [*THREAD, "limit", "early"]
    in_order = (pl.col(BEGUN) == pl.col(BEGUN).cum_min(reverse=True)).over(sequence)
    possible = in_order & (pl.col("limit").is_null() | (pl.col(BEGUN) <= pl.col("limit")))
    return calls.with_columns(wrong=pl.col("early") & possible.fill_null(value=False).all().over(sequence))


def _freed(calls: pl.DataFrame) -> pl.DataFrame:
    """Add when each call returned (`freed`), and when the one before it on the thread did (`since`).

    A launch that lasts until a wrong copy began did not: it was taken to last until the next call.
    """
    began = pl.when("wrong").then(BEGUN).otherwise(CALLED).shift(-1).over(THREAD)
    copied = pl.min_horizontal("ended", began)
    waited = pl.when("wrong").then(BEGUN).shift(-1).over(THREAD)
    long = pl.col("api").str.contains("Launch") & (pl.col("end_ns") >= waited - DRAINED_NS)
    usual = pl.when(long).then(pl.min_horizontal("end_ns", pl.col(CALLED) + USUAL_NS)).otherwise("end_ns")
    freed = calls.with_columns(freed=pl.when("wrong").then(copied).otherwise(usual))
    return freed.with_columns(since=pl.col("freed").shift(1).over(THREAD))


def _starts(
    wrong: pl.DataFrame, kernels: pl.DataFrame, stacks: pl.DataFrame, waits: pl.DataFrame
) -> pl.DataFrame:
    """Return the time `at` which each wrong call began."""
    ends = waits.select(*THREAD, waited="end_ns")
    worked = kernels.select(*STREAM, worked="end_ns")
    wrong = _last(wrong, ends, "waited", THREAD)
    wrong = _last(wrong, worked, "worked", STREAM)
    wrong = _last(wrong, _runs(stacks), "time_ns", THREAD)
    wrong = wrong.with_columns(since=pl.max_horizontal("since", "waited"))
    drained = (pl.col("worked") > pl.col("since").fill_null(0)) & (
        pl.col(BEGUN) - pl.col("worked") <= DRAINED_NS
    )
    late = pl.min_horizontal(pl.max_horizontal(CALLED, "since"), BEGUN)
    return wrong.select(
        "row", at=pl.when(drained).then(pl.coalesce(_appeared(), "since", late)).otherwise(late)
    )


def _last(wrong: pl.DataFrame, events: pl.DataFrame, time: str, by: tuple[str, ...]) -> pl.DataFrame:
    """Add the last of the events, at `time`, that precede each copy; an unknown thread is one thread."""
    key = pl.concat_str(*(pl.col(name).cast(pl.String).fill_null("") for name in by), separator="\n")
    events = events.drop_nulls(time).select(pl.exclude(by), key=key).sort(time)
    wrong = wrong.with_columns(key=key).sort(BEGUN)
    return wrong.join_asof(events, left_on=BEGUN, right_on=time, by="key", check_sortedness=False).drop("key")


def _runs(stacks: pl.DataFrame) -> pl.DataFrame:
    """Return the samples, with the first one of the same stack and the last one before it (`other`)."""
    ordered = stacks.drop_nulls("time_ns").sort(*THREAD, "time_ns")
    ordered = ordered.with_columns(
        run=pl.col("stack").rle_id().over(THREAD), other=pl.col("time_ns").shift(1).over(THREAD)
    )
    run = [*THREAD, "run"]
    return ordered.select(
        *THREAD, "time_ns", first=pl.col("time_ns").first().over(run), other=pl.col("other").first().over(run)
    )


def _appeared() -> pl.Expr:
    """Return when a call's stack appeared, between two samples; null if it is older than the call can be."""
    opened = pl.max_horizontal("other", "since")
    between = (pl.coalesce(opened, "first") + pl.col("first")) // 2
    return pl.when(pl.col("first") > pl.col("since").fill_null(0)).then(between)


def _times(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the times of wrong calls, and the end of a call that was taken to last until one of them."""
    following = pl.col("at").shift(-1).over(THREAD)
    until = pl.when(pl.col("wrong") | (pl.col("end_ns") > following)).then("freed")
    return calls.select("row", "at", until=until)
