"""What Dynamo gave up, by its own counters, and how much of the step runs there."""

from __future__ import annotations

import re

import msgspec
import polars as pl
from msgspec.structs import replace

from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Broken
from fathom.diagnosis.signals.value import signal
from fathom.sounding import COMPILER, Counted, Place

NOTHING = "nothing was compiled, or Dynamo's counters were not recorded"
NO_STACKS = "no step was recorded with stacks"
FRAME = re.compile(r"(.+)\((\d+)\): (.+)")  # as the profiler names it, by the line that it begins at


@signal("host.breaks")
def breaks(recorded: Recorded) -> list[Broken]:
    """Where graphs ended early, in whatever part of the program."""
    return [_broken(one, "") for one in _counted(recorded).breaks]


@signal("host.given_up", "of the step's ops")
def given_up(recorded: Recorded) -> list[Broken]:
    """Frames that run uncompiled in the step, those with most of its ops first.

    An op is told by the program's innermost frame: a library's functions count for what calls them.
    """
    counted = _counted(recorded)
    usual = counted.reasons[0][0] if counted.reasons else ""
    if not counted.given_up:
        return []
    shares = _shares(recorded)
    found = [_in_step(one, usual, shares) for one in counted.given_up]
    return sorted((one for one in found if one.share > 0), key=lambda one: -one.share)


def _in_step(frame: Place, usual: str, shares: dict[str, float]) -> Broken:
    """With its file as the ops name it."""
    mine = [source for source in shares if _is(frame, source)]
    broken = _broken(frame, usual, sum(shares[source] for source in mine))
    short = [told[1] for source in mine[:1] if (told := FRAME.fullmatch(source))]
    return replace(broken, place=broken.place.replace(frame.file or "?", short[0])) if short else broken


def _counted(recorded: Recorded) -> Counted:
    about = (one for one in recorded.store.manifest.ranks if one.rank == recorded.account.rank)
    told = next((one.facts[COMPILER] for one in about if COMPILER in one.facts), None)
    if told is None:
        raise UnknownSignalError(NOTHING)
    return msgspec.convert(told, Counted)


def _shares(recorded: Recorded) -> dict[str, float]:
    """Of the ops that were recorded with a source, by it."""
    told = recorded.ops.filter(pl.col("kind") == "op", pl.col("source").is_not_null())
    if told.is_empty():
        raise UnknownSignalError(NO_STACKS)
    return {source: count / told.height for source, count in told["source"].value_counts().iter_rows()}


def _is(frame: Place, source: str) -> bool:
    """Profilers leave out the beginning of a path that is one of sys.path."""
    told = FRAME.fullmatch(source)
    if told is None:
        return False
    path = "/" + told[1].lstrip("./")
    return (int(told[2]), told[3]) == (frame.line, frame.function) and f"/{frame.file}".endswith(path)


def _broken(place: Place, usual: str, share: float = 0.0) -> Broken:
    file, line = place.at or (place.file or "?", place.line)
    where = file if line is None else f"{file}:{line}"
    return Broken(place.function or "?", where, place.why or usual, share)
