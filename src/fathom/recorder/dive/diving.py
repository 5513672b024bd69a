"""Run a dive: choose the launch, profile it with ncu, import and explain the result."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fathom.errors import BadInputError
from fathom.recorder.command import free_output
from fathom.recorder.dive.choosing import Target, choose
from fathom.recorder.dive.profiling import SETS, CannotProfileError, as_csv, find_ncu, profile
from fathom.recorder.origin import is_ours
from fathom.recorder.redact import redact_command
from fathom.redaction import HIDDEN

if TYPE_CHECKING:
    from fathom.analysis.explaining import Explanation
    from fathom.sounding import HotSpot, Launch, Store

REPORT = "kernel.ncu-rep"  # kept in the new sounding for the Nsight Compute GUI


@dataclass(frozen=True)
class Dive:
    """The new sounding, the explanation of its counters, and the places where warps wait."""

    store: Store
    target: Target
    explanation: Explanation
    spots: list[HotSpot]


def dive(
    sounding: Path,
    pattern: str,
    command: list[str] | None = None,
    *,
    yes: bool = False,
    launch: int | None = None,
    sections: str = "detailed",
    output: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    say: Callable[[str], None] = lambda _: None,
) -> Dive:
    """Profile one launch of the family that `pattern` matches, in a new run of the program, and explain it.

    `command` overrides the recorded command, which is run only if this user recorded it on this host, or with
    `yes`. Raises BadInputError for invalid requests, and CannotProfileError if ncu left no result; the
    original sounding is never changed.
    """
    from fathom.sounding import open_store

    if sections not in SETS:
        raise BadInputError(f"There is no set '{sections}'; choose one of {', '.join(SETS)}.")
    parent = open_store(sounding)
    target = choose(parent, pattern, launch)
    words = command or _recorded(parent, yes)
    find_ncu(environment)
    output = output or free_output(f"{parent.path.name.partition('.')[0]}-dive", Path())
    if output.exists():
        raise BadInputError(f"{output} already exists; choose another name with -o.")
    say(f"profiling {target.family}, from launch {target.skip} on: {' '.join(words)}")
    with tempfile.TemporaryDirectory(prefix="fathom-dive-") as folder:
        report = profile(target, words, sections, Path(folder), environment)
        store = _import(report, parent, target, words, output, environment, say)
        shutil.copyfile(report, store.path / REPORT)
    return Dive(store, target, explanation_of(store, target.family), spots_of(store))


def _recorded(parent: Store, yes: bool) -> list[str]:
    words = parent.manifest.command
    if not words:
        raise BadInputError(f"{parent.path} does not contain the program's command; give it after --.")
    hidden = next((word for word in words if HIDDEN in word), None)
    if hidden is not None:
        raise BadInputError(
            f"The recorded command lacks a redacted secret ({hidden}); give the full command after --."
        )
    if not (yes or is_ours(words, parent.manifest.origin)):
        raise BadInputError(
            f"{parent.source} was not recorded here by you, and names this command: {shlex.join(words)}; "
            "run it with --yes if you trust it, or give a command after --."
        )
    return words


def _import(
    report: Path,
    parent: Store,
    target: Target,
    words: list[str],
    output: Path,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> Store:
    from fathom.sounding import NoReaderError, import_ncu

    shapes: set[str] = set()

    def rename(launch: Launch, family: str) -> str | None:
        shape = f"{launch.grid}·{launch.block}"
        shapes.add(shape)
        return target.family if target.shape in ("", shape) else None

    def imported(source: Path) -> Store:
        return import_ncu(
            [source],
            output,
            name=output.stem,
            parent=str(parent.path),
            command=redact_command(words),
            ncu=Path(find_ncu(environment)),
            rename=rename,
        )

    try:
        return imported(report)
    except BadInputError as error:
        if shapes:
            raise _unusable(error, target, shapes) from None
        why = error.why if isinstance(error, NoReaderError) else str(error)
    say(f"reading ncu's printed output, without source lines and instructions: {why}")
    try:
        return imported(as_csv(report, environment))
    except BadInputError as error:
        raise _unusable(error, target, shapes) from None


def _unusable(error: BadInputError, target: Target, shapes: set[str]) -> CannotProfileError:
    if shapes and target.shape and target.shape not in shapes:
        return CannotProfileError(
            f"{target.family} was not reached: launches with its name had the shapes "
            f"{', '.join(sorted(shapes))}; choose another with --launch."
        )
    return CannotProfileError(f"ncu left no usable result: {error}")


def families_of(store: Store) -> list[str]:
    """Return the kernel families of an imported ncu result, which has no timeline; [] for other soundings."""
    if any(store.table("steps", rank).limit(1).collect().height for rank in store.ranks):
        return []
    rows = store.table("counters").filter(source="ncu").select("family").unique().collect()
    return sorted(rows["family"])


def explanation_of(store: Store, family: str) -> Explanation:
    """Return the explanation of a family's counters, averaged over devices and ranks."""
    import polars as pl

    from fathom.analysis.explaining import explain

    rows = store.table("counters").filter(pl.col("family") == family).collect()
    means = rows.group_by("counter").agg(pl.col("value").mean())
    return explain(family, dict(means.iter_rows()))


def spots_of(store: Store) -> list[HotSpot]:
    """Return the places where warps waited, by source line and instruction; [] if ncu did not sample them."""
    from msgspec import convert

    from fathom.sounding import HotSpot

    rows = [row for rank in store.manifest.ranks for row in rank.facts.get("hot_spots", [])]
    return convert(rows, list[HotSpot])
