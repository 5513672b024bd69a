"""Build the `stacks` table from the recorder's samples of one process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from fathom.probe.frames import ITERATORS, SAMPLED, SPARSE
from fathom.regular import RECORDS, decode, read_json, read_regular
from fathom.sounding.manifest import Facts
from fathom.sounding.raw.folder import Record
from fathom.sounding.raw.shape import STACKS, FramesShape, IteratorsShape, StretchOfSamples, checked
from fathom.sounding.raw.tables import in_phases
from fathom.sounding.schema import TABLES, empty
from fathom.units import NS_PER_S

_PACKAGES = ("/site-packages/", "/dist-packages/")
NEXT = "__next__"
_GENERATED = re.compile(r"/[a-z2-7]{2}/c[a-z2-7]{51}\.py$")  # by Inductor: c and its hash
_TYPED = ("<stdin>", "<string>", "<ipython")  # frames of programs without a file

# Workers of a pool, of anyio's or of the standard library's, that wait for a call.
_IDLE = re.compile(
    r"(^|;)WorkerThread\.run \([^;]*/anyio/[^;]*\);Queue\.get \([^;]*/queue\.py:"
    r"|;_worker \([^;]*/concurrent/futures/thread\.py:\d+\)$"
)
_LOOP = re.compile(r"/asyncio/(base_events|events|runners)\.py:")

Frame = tuple[str, str, int]  # function, file, line
Row = tuple[Any, ...]  # time, thread, running, call, stack, and the columns LOOKED
LOOKED = ("moved", "apart_ns", "on_processor")  # columns of samples that were read twice


class StackSamples:
    """The samples of one process; samples refer to `stacks`, and stacks to `frames`, by index."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.stacks: list[list[int]] = []
        self.rows: list[Row] = []
        self.stretches: list[Record] = []
        self.main: dict[int, tuple[bool | None, str | None, int]] = {}  # running, call and stack by time

    def take(self, record: Record) -> None:
        """Add one record. Raises KeyError, TypeError or ValueError if it is damaged."""
        kind = record["t"]
        if kind == "frames":
            self.frames += checked(record["rows"], STACKS["frames"])
        elif kind == "stacks":
            self.stacks += checked(record["rows"], STACKS["stacks"])
        elif kind == "samples":
            thread = int(record["thread"])
            checked([row[:4] for row in record["rows"]], STACKS["samples"])
            checked([row[4:] for row in record["rows"]], STACKS["looked"])
            self.rows += [
                (ns, thread, running, call, stack, *(looked or [None] * len(LOOKED)))
                for ns, running, call, stack, *looked in record["rows"]
            ]
        elif kind == "main":
            rows = checked(record["rows"], STACKS["samples"])
            self.main |= {ns: (running, call, stack) for ns, running, call, stack in rows}
        elif kind == "stretch":
            checked(record, StretchOfSamples)
            self.stretches.append(record)


def stacks(raw: Path, pid: int, marked: pl.DataFrame) -> tuple[pl.DataFrame, Record]:
    """Return the `stacks` table, and facts about the sampling; both are empty if nothing was sampled."""
    samples = _read(raw / f"stacks-{pid}.jsonl")
    if not samples.rows:
        return empty("stacks"), {}
    about = _json(raw / f"frames-{pid}.json", FramesShape)
    iterating = _json(raw / ITERATORS.format(pid=pid), IteratorsShape)
    chosen = [
        [samples.frames[number] for number in stack if number < len(samples.frames)]
        for stack in samples.stacks
    ]
    names = [(*_texts(frames, about), _iterators(frames, iterating)) for frames in chosen]
    _follow_loop(samples, [text for _, _, text, _ in names])
    texts = {name: TABLES["stacks"][name] for name in ("function", "source", "stack", "iterators")}
    known = pl.DataFrame(
        [(i, *row) for i, row in enumerate(names)], schema={"number": pl.Int64(), **texts}, orient="row"
    )
    schema = {name: TABLES["stacks"][name] for name in ("time_ns", "thread", "running", "call")}
    schema |= {"number": pl.Int64} | {name: TABLES["stacks"][name] for name in LOOKED}
    rows = pl.DataFrame(samples.rows, schema=schema, orient="row", strict=False)
    table = in_phases(rows.join(known, on="number"), "time_ns", marked)
    table = table.filter(pl.col("phase").is_in(list(SAMPLED)))
    return table.select(list(TABLES["stacks"])), {"stacks": _facts(samples), **_threads(iterating)}


def _follow_loop(samples: StackSamples, texts: list[str]) -> None:
    """Replace samples of an idle worker by those of the main thread, if its event loop runs a callback.

    Until the callback ends, no request reaches the worker.
    """
    idle = {number for number, text in enumerate(texts) if _IDLE.search(text)}
    looping = {number for number, text in enumerate(texts) if _LOOP.search(text)}
    for place, (ns, thread, running, _, stack, *_) in enumerate(samples.rows):
        main = samples.main.get(ns)
        if main and running is False and stack in idle and main[2] in looping:
            samples.rows[place] = (ns, thread, *main, *[None] * len(LOOKED))


def _read(file: Path) -> StackSamples:
    """Read samples up to the first torn line, because later lines refer to earlier ones."""
    samples = StackSamples()
    if file.is_file():
        for line in read_regular(file, RECORDS).split(b"\n"):
            try:
                samples.take(decode(line))
            except (KeyError, TypeError, ValueError):
                if line.strip():
                    break
    return samples


def _json(file: Path, shape: Any) -> Record:
    """Return the record in `file`; {} if there is none of this shape."""
    try:
        record = dict(read_json(file))
        checked(record, shape)
        return record
    except (OSError, ValueError, TypeError):
        return {}


def _texts(frames: list[Frame], about: Record) -> tuple[str, str, str]:
    """Return function and source of the program's innermost frame, and the text of all frames."""
    programs = (frame for frame in reversed(frames) if is_program(frame[1], about))
    own = next(programs, frames[-1] if frames else ("", "", 0))
    every = ";".join(f"{name} ({file}:{line})" for name, file, line in frames)
    return own[0], f"{own[1]}:{own[2]}", every


def _iterators(frames: list[Frame], iterating: Record) -> list[int] | None:
    """Return the positions of `__next__` and of generators that lived between steps; None if not recorded."""
    generators = iterating.get("generators")
    if not isinstance(generators, list):
        return None
    known = {tuple(map(str, pair)) for pair in generators if isinstance(pair, list)}
    return [
        place
        for place, (name, file, _) in enumerate(frames)
        if (name, file) in known or name.rpartition(".")[2] == NEXT
    ]


def _threads(iterating: Record) -> Record:
    """Return the number of torch's compute threads, if it is known."""
    known = iterating.get("threads")
    return {"threads": known} if isinstance(known, int) else {}


def is_program(file: str, about: Record) -> bool:
    """Return whether a file belongs to the program: not to a package, a compiler, Python or Fathom."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    if any(package in file for package in _PACKAGES) or _GENERATED.search(file):
        return False
    folders = [*about.get("standard", []), about.get("fathom") or "/fathom/probe"]
    return not file.startswith(tuple(f"{folder.rstrip('/')}/" for folder in folders))


def _facts(samples: StackSamples) -> Facts:
    """Return counts of samples taken and dropped, and samples per second, in stretches of dense sampling."""
    bursts = [stretch for stretch in samples.stretches if stretch.get("rate") != SPARSE]
    taken = sum(int(stretch.get("samples", 0)) for stretch in bursts)
    seconds = sum(stretch["end_ns"] - stretch["start_ns"] for stretch in bursts) / NS_PER_S
    dropped = sum(int(stretch.get("dropped", 0)) for stretch in bursts)
    return {"samples": taken, "dropped": dropped, "per_s": taken / seconds if seconds else None}
