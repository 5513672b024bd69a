"""Build the `stacks` table from the recorder's samples of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from fathom.probe.frames import SAMPLED, SPARSE
from fathom.regular import RECORDS, decode, read_json, read_regular
from fathom.sounding.raw.folder import Record
from fathom.sounding.raw.tables import in_phases
from fathom.sounding.schema import TABLES, empty
from fathom.units import NS_PER_S

_PACKAGES = ("/site-packages/", "/dist-packages/")
_TYPED = ("<stdin>", "<string>", "<ipython")  # frames of programs without a file

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

    def take(self, record: Record) -> None:
        """Add one record. Raises KeyError, TypeError or ValueError if it is damaged."""
        kind = record["t"]
        if kind == "frames":
            self.frames += [(str(name), str(file), int(line)) for name, file, line in record["rows"]]
        elif kind == "stacks":
            self.stacks += record["rows"]
        elif kind == "samples":
            thread = int(record["thread"])
            self.rows += [
                (ns, thread, running, call, stack, *(looked or [None] * len(LOOKED)))
                for ns, running, call, stack, *looked in record["rows"]
            ]
        elif kind == "stretch":
            self.stretches.append(record)


def stacks(raw: Path, pid: int, marked: pl.DataFrame) -> tuple[pl.DataFrame, Record]:
    """Return the `stacks` table, and facts about the sampling; both are empty if nothing was sampled."""
    samples = _read(raw / f"stacks-{pid}.jsonl")
    if not samples.rows:
        return empty("stacks"), {}
    names = [_texts(stack, samples.frames, _about(raw, pid)) for stack in samples.stacks]
    known = pl.DataFrame(
        [(i, *texts) for i, texts in enumerate(names)],
        schema={"number": pl.Int64, "function": pl.String, "source": pl.String, "stack": pl.String},
        orient="row",
    )
    schema = {name: TABLES["stacks"][name] for name in ("time_ns", "thread", "running", "call")}
    schema |= {"number": pl.Int64} | {name: TABLES["stacks"][name] for name in LOOKED}
    rows = pl.DataFrame(samples.rows, schema=schema, orient="row", strict=False)
    table = in_phases(rows.join(known, on="number"), "time_ns", marked)
    table = table.filter(pl.col("phase").is_in(list(SAMPLED)))
    return table.select(list(TABLES["stacks"])), {"stacks": _facts(samples)}


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


def _about(raw: Path, pid: int) -> Record:
    try:
        return dict(read_json(raw / f"frames-{pid}.json"))
    except (OSError, ValueError, TypeError):
        return {}


def _texts(stack: list[int], frames: list[Frame], about: Record) -> tuple[str, str, str]:
    """Return function and source of the program's innermost frame, and the text of all frames."""
    chosen = [frames[number] for number in stack if number < len(frames)]
    programs = (frame for frame in reversed(chosen) if is_program(frame[1], about))
    own = next(programs, chosen[-1] if chosen else ("", "", 0))
    every = ";".join(f"{name} ({file}:{line})" for name, file, line in chosen)
    return own[0], f"{own[1]}:{own[2]}", every


def is_program(file: str, about: Record) -> bool:
    """Return whether a file belongs to the program: not to a package, Python or Fathom."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    if any(package in file for package in _PACKAGES):
        return False
    folders = [*about.get("standard", []), about.get("fathom") or "/fathom/probe"]
    return not file.startswith(tuple(f"{folder.rstrip('/')}/" for folder in folders))


def _facts(samples: StackSamples) -> dict[str, Any]:
    """Return counts of samples taken and dropped, and samples per second, in stretches of dense sampling."""
    bursts = [stretch for stretch in samples.stretches if stretch.get("rate") != SPARSE]
    taken = sum(int(stretch.get("samples", 0)) for stretch in bursts)
    seconds = sum(stretch["end_ns"] - stretch["start_ns"] for stretch in bursts) / NS_PER_S
    dropped = sum(int(stretch.get("dropped", 0)) for stretch in bursts)
    return {"samples": taken, "dropped": dropped, "per_s": taken / seconds if seconds else None}
