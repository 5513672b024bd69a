"""Compiled functions, graph breaks, and frames that Dynamo left uncompiled."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import polars as pl
from msgspec.structs import replace

from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Broken, Compiled, Recompiled
from fathom.diagnosis.signals.value import signal
from fathom.sounding import COMPILER, Counted, Place
from fathom.units import NS_PER_MS

REGION = r"^Torch-Compiled Region: (\d+)/(\d+)"
LOOKUP = "TorchDynamo Cache Lookup"  # part of the cost of a break
COMPILATION = r"\b(\d+)/(\d+)"
NOTHING = "nothing was compiled, or Dynamo's counters were not recorded"
NO_STACKS = "no step was recorded with stacks"
FRAME = re.compile(r"(.+)\((\d+)\): (.+)")  # the profiler's name: file, first line, function


@signal("host.compiled", "per step")
def compiled(recorded: Recorded) -> Compiled:
    """Return compiled functions of both profiled phases, and their versions, also from other steps."""
    regions = recorded.ops.filter(pl.col("name").str.contains(REGION))
    waits = recorded.rows("waits").collect()
    details = waits.filter(pl.col("cause").is_in(["compilation", "compile"]))["detail"].drop_nulls()
    versions = _versions([*regions["name"].unique(), *details.unique()])
    lookups = recorded.ops.filter(name=LOOKUP)
    inside = regions.filter(recorded.inside(regions)).sort("thread", "start_ns")
    resumed = _resumed(inside, recorded)
    return Compiled(
        versions,
        inside.height / recorded.steps,
        resumed.height / recorded.steps,
        int(resumed["ns"].sum()) / recorded.steps / NS_PER_MS,
        resumed["ran"].drop_nulls().first(),  # type: ignore[arg-type]
        int(recorded.inside(lookups).sum()) / recorded.steps,
    )


def _resumed(regions: pl.DataFrame, recorded: Recorded) -> pl.DataFrame:
    """Return regions that start inside another one, because a compiled frame calls the code after its break.

    Functions compiled separately follow each other. `ns` is the time since the host's last op or call.
    """
    open_until = pl.col("end_ns").cum_max().shift(1).over("thread")
    within = regions.with_columns(before=pl.col("start_ns").shift(1).over("thread"), until=open_until)
    done = [t.filter(phase="timeline").select("thread", "end_ns") for t in (_ops(recorded), recorded.calls)]
    ended = pl.concat(done).drop_nulls().sort("end_ns").with_columns(ended="end_ns")
    nested = within.filter(pl.col("start_ns") < pl.col("until")).drop("end_ns").sort("start_ns")
    nested = nested.join_asof(
        ended, left_on="start_ns", right_on="end_ns", by="thread", check_sortedness=False
    )
    return nested.with_columns(ns=pl.col("start_ns") - pl.max_horizontal("before", "ended"))


def _ops(recorded: Recorded) -> pl.DataFrame:
    return recorded.ops.filter(pl.col("name") != LOOKUP)


def _versions(texts: Iterable[str]) -> dict[int, int]:
    """Return the number of versions of each function; versions are numbered from 0."""
    versions: dict[int, int] = {}
    for text in texts:
        match = re.search(REGION, text) or re.search(COMPILATION, text)
        if match:
            number, version = (int(part) for part in match.groups())
            versions[number] = max(versions.get(number, 0), version + 1)
    return versions


@signal("host.breaks")
def breaks(recorded: Recorded) -> list[Broken]:
    """Return the places of graph breaks in the whole program."""
    return [_broken(place, "") for place in _counted(recorded).breaks]


@signal("host.given_up", "of the step's ops")
def given_up(recorded: Recorded) -> list[Broken]:
    """Return frames that run uncompiled in the step, in order of falling number of ops.

    An op belongs to the program's innermost frame: library functions count for their caller.
    """
    counted = _counted(recorded)
    usual = counted.reasons[0][0] if counted.reasons else ""
    if not counted.given_up:
        return []
    shares = _shares(recorded)
    frames = [_in_step(place, usual, shares) for place in counted.given_up]
    return sorted((frame for frame in frames if frame.share > 0), key=lambda frame: -frame.share)


@signal("host.recompiled")
def recompiled(recorded: Recorded) -> list[Recompiled]:
    """Return frames that were compiled again, most often first."""
    counted = _counted(recorded)
    shares = _shares(recorded) if recorded.ops["source"].count() else {}
    frames = ((frame, _in_step(frame, "", shares)) for frame in counted.recompiled)
    return [Recompiled(at.function, at.place, at.why, frame.times, frame.limited) for frame, at in frames]


def _in_step(frame: Place, usual: str, shares: dict[str, float]) -> Broken:
    """Return the frame, with its file as named by the ops."""
    mine = [source for source in shares if _is(frame, source)]
    broken = _broken(frame, usual, sum(shares[source] for source in mine))
    short = [match[1] for source in mine[:1] if (match := FRAME.fullmatch(source))]
    return replace(broken, place=broken.place.replace(frame.file or "?", short[0])) if short else broken


def _counted(recorded: Recorded) -> Counted:
    if COMPILER not in recorded.facts:
        raise UnknownSignalError(NOTHING)
    return msgspec.convert(recorded.facts[COMPILER], Counted)


def _shares(recorded: Recorded) -> dict[str, float]:
    """Return each source's share of all ops with a source."""
    ops = recorded.ops.filter(pl.col("kind") == "op", pl.col("source").is_not_null())
    if ops.is_empty():
        raise UnknownSignalError(NO_STACKS)
    return {source: count / ops.height for source, count in ops["source"].value_counts().iter_rows()}


def _is(frame: Place, source: str) -> bool:
    """Return whether the source is this frame; profilers strip prefixes in sys.path."""
    match = FRAME.fullmatch(source)
    if match is None:
        return False
    path = "/" + match[1].lstrip("./")
    return (int(match[2]), match[3]) == (frame.line, frame.function) and f"/{frame.file}".endswith(path)


def _broken(place: Place, usual: str, share: float = 0.0) -> Broken:
    file, line = place.at or (place.file or "?", place.line)
    where = file if line is None else f"{file}:{line}"
    return Broken(place.function or "?", where, place.why or usual, share)
