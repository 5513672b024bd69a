"""The program's own functions and lines, by samples of the host's stacks in clean steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import sqrt

import polars as pl

from fathom.analysis.intervals import containing, spans
from fathom.analysis.making import LIBRARY
from fathom.analysis.results import CodeTime, FunctionTime, Place
from fathom.analysis.steps import Stretch, stretches
from fathom.sounding import Store

ENOUGH = 50  # samples in clean steps: fewer give no shares
FEW = 5  # samples of a function, and
LEAST = 0.02  # of all samples: smaller functions are left out, and lines of functions too
_NESTED = re.compile(r"\.<locals>\.<(genexpr|listcomp|setcomp|dictcomp)>")  # runs where it is written


def own_code_of(store: Store, rank: int, steps: pl.DataFrame, kind: str, mean_ms: float) -> CodeTime | None:
    """Return the time of the program's functions in the mean clean step of `kind`, longest first.

    A sample belongs to the innermost function outside libraries, so ops count where the program calls them.
    Rare long steps have their part, as in the mean. None if there are too few samples.
    """
    rows = store.table("stacks", rank).filter(phase="clean").select("time_ns", "thread", "function", "source")
    samples = in_stretches(rows.collect(), stretches(steps, kind))
    if samples.height < ENOUGH:
        return None
    own = samples.filter(~pl.col("source").str.contains(LIBRARY.pattern), pl.col("function") != "")
    named = own.with_columns(
        function=pl.col("function").str.replace_all(_NESTED.pattern, ""),
        file=pl.col("source").str.replace(r":\d+$", ""),
    )
    functions = [
        _function(str(name), str(file), mine, samples.height, mean_ms)
        for (name, file), mine in named.group_by("function", "file", maintain_order=True)
        if mine.height >= max(FEW, LEAST * samples.height)
    ]
    functions.sort(key=lambda function: (-function.share, function.function))
    return CodeTime(rank, kind, samples.height, mean_ms, functions) if functions else None


def in_stretches(stacks: pl.DataFrame, parts: Iterable[Stretch]) -> pl.DataFrame:
    """Return the samples within the clean steps of `parts`, of the thread with most samples there.

    `stacks` has the columns `time_ns` and `thread`.
    """
    clean = sorted((start, end) for part in parts for *_, start, end in part.host_spans())
    marked = spans([start for start, _ in clean], [end for _, end in clean])
    inside = stacks.filter(pl.Series(containing(marked, stacks["time_ns"].to_numpy()) >= 0, dtype=pl.Boolean))
    return inside.filter(pl.col("thread") == pl.col("thread").mode().min())


def _function(name: str, file: str, mine: pl.DataFrame, of: int, mean_ms: float) -> FunctionTime:
    share = mine.height / of
    lines = mine.group_by("source").len().sort("len", "source", descending=[True, False])
    return FunctionTime(
        function=name,
        file=file,
        share=share,
        error=sqrt(share * (1 - share) / of),
        ms=share * mean_ms,
        lines=[Place(name, source, count / of) for source, count in lines.iter_rows()],
    )
