"""Facts about the requests of a recording that rules compare with their thresholds."""

from __future__ import annotations

import polars as pl

from fathom.analysis.serving import Entry, Serving
from fathom.diagnosis.serving.engine import FULL, iterations_of, periods_ms
from fathom.diagnosis.serving.speculation import drafts_of

Tables = dict[str, pl.DataFrame]
Facts = dict[str, float | None]


def facts_of(serving: Serving, tables: Tables) -> Facts:
    """Return the facts of a recording by name; shares are of the requests' mean time. None: not known."""
    share = {row.entry: row.share for row in serving.ledger}
    prompt, generated = max(serving.prompt_tokens or 0, 1), max(serving.generated_tokens or 0, 1)
    spent, rows = _spans_ms(tables), iterations_of(tables)
    drafts = drafts_of(rows, periods_ms(rows))
    return {
        "busy": serving.busy or 0.0,
        "queue_share": share.get(Entry.QUEUE, 0.0),
        "at_limit_share": _at_limit(tables),
        "kv_free": 1.0 - (serving.kv_peak or 0.0),
        "kv_full_share": _kv_full(tables),
        "kept_out_share": sum(
            share.get(entry, 0.0) for entry in (Entry.QUEUE, Entry.PREEMPTED, Entry.RECOMPUTE)
        ),
        "repeated_share": (_repeated(tables) - (serving.cached_tokens or 0)) / prompt,
        "prefill_share": sum(
            share.get(entry, 0.0) for entry in (Entry.PREFILL, Entry.PREFILL_OTHERS, Entry.DECODE_OTHERS)
        ),
        "tokenise_share": share.get(Entry.TOKENISE, 0.0),
        "tokenise_ms_per_1000": 1000 * spent.get("tokenise", 0.0) / prompt,
        "detokenise_ms_per_token": spent.get("detokenise", 0.0) / generated,
        "stream_share": share.get(Entry.STREAM, 0.0),
        "blocked_share": share.get(Entry.DECODE_OTHERS, 0.0),
        "longest_over_decode": _longest_over_decode(serving),
        "block_waste": block_waste(tables),
        "rejected_share": drafts.rejected_share,
        "draft_slowdown": drafts.slowdown,
    }


def facts_of_spans(serving: Serving, tables: Tables) -> dict[str, float | None]:
    """Return the facts of requests that have stages of imported spans; None: the spans do not say."""
    share = {row.entry: row.share for row in serving.ledger}
    stages = set(tables["request_spans"]["what"].unique())
    spent, prompt = _spans_ms(tables), serving.prompt_tokens
    known: dict[str, float | None] = dict.fromkeys(facts_of(serving, tables))
    known["busy"] = serving.busy
    if Entry.QUEUE in stages:
        out = (Entry.QUEUE, Entry.PREEMPTED, Entry.RECOMPUTE)
        known["queue_share"] = share.get(Entry.QUEUE, 0.0)
        known["kept_out_share"] = sum(share.get(entry, 0.0) for entry in out)
    if Entry.PREFILL_PHASE in stages:
        known["prefill_share"] = share.get(Entry.PREFILL_PHASE, 0.0)
    if Entry.TOKENISE in stages:
        known["tokenise_share"] = share.get(Entry.TOKENISE, 0.0)
        known["tokenise_ms_per_1000"] = 1000 * spent["tokenise"] / prompt if prompt else None
    return known


def _spans_ms(tables: Tables) -> dict[str, float]:
    """Return the summed length of spans by name; of nested ones (tokenise), only the longest per request."""
    spans = tables["request_spans"].with_columns(ms=(pl.col("end_ns") - pl.col("start_ns")) / 1e6)
    outer = spans.filter(what="tokenise").group_by("request").agg(pl.col("ms").max())
    total = spans.group_by("what").agg(pl.col("ms").sum())
    return {**dict(total.iter_rows()), "tokenise": float(outer["ms"].sum())}


def _at_limit(tables: Tables) -> float:
    """Return the share of iterations that leave requests waiting and hold as many requests as any does."""
    counts = tables["turns"].group_by("iteration").agg(n=pl.len())
    rows = tables["iterations"].join(counts, on="iteration")
    waiting = rows.filter(pl.col("waiting") > 0)
    if waiting.is_empty():
        return 0.0
    most = rows["n"].max()
    return waiting.filter(pl.col("n") == most).height / waiting.height


def _kv_full(tables: Tables) -> float:
    """Return the share of iterations that leave requests waiting and have a cache that is nearly full."""
    waiting = tables["iterations"].filter(pl.col("waiting") > 0)
    full = waiting.filter(pl.col("kv_used") >= FULL * pl.col("kv_total"))
    return full.height / waiting.height if waiting.height else 0.0


def block_waste(tables: Tables) -> float:
    """Return the share of the used blocks that is behind the ends of requests; 0 if it is not known.

    Only the last block of a request is partly empty. Iterations that leave requests waiting count.
    """
    waiting = tables["iterations"].filter(
        pl.col("waiting") > 0, pl.col("kv_block") > 1, pl.col("kv_used") > 0
    )
    cached = tables["requests"].select("request", pl.col("cached").fill_null(0))
    turns = tables["turns"].sort("iteration").join(cached, on="request")
    lengths = turns.with_columns(tokens=pl.col("tokens").cum_sum().over("request") + pl.col("cached"))
    rows = lengths.join(waiting.select("iteration", "kv_block"), on="iteration")
    behind = (pl.col("kv_block") - pl.col("tokens") % pl.col("kv_block")) % pl.col("kv_block")
    empty = int(rows.select(behind).to_series().sum())
    room = int((waiting["kv_used"] * waiting["kv_block"]).sum())
    return min(empty / room, 1.0) if room else 0.0


def _repeated(tables: Tables) -> int:
    return int(tables["requests"]["repeated"].sum())


def _longest_over_decode(serving: Serving) -> float:
    """Return how many times longer the median iteration with a prefill is than that of decodes."""
    of_kind = {kind.kind: kind.p50_ms for kind in serving.iterations}
    return of_kind.get("mixed", 0.0) / of_kind["decode"] if of_kind.get("decode") else 0.0
