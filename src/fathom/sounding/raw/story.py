"""Build the manifest of a recording."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from fathom.probe.ending import EXCEPTION
from fathom.sounding.manifest import Manifest, Phase, Problem, Rank
from fathom.sounding.raw.folder import Process, Raw
from fathom.sounding.raw.steps import is_of_slower_steps

# First words of notes about analyses that were skipped; all other notes are problems of the recording.
ABSTAINING = (
    *("memory", "timeline", "attribution", "counters", "settle"),
    *("own-profiler", "no-steps", "interrupted", "what-if"),
)
SLOWER_STEPS = (
    "steps became over 20 % faster after the timeline was recorded, and the program ended before it could be "
    "recorded again: the ledger is of the slower steps"
)


@dataclass
class RecordedRank:
    """The manifest's entries for one rank."""

    rank: Rank
    phases: list[Phase]
    problems: list[Problem] = field(default_factory=list)
    abstained: list[dict[str, str]] = field(default_factory=list)


def manifest(raw: Raw, recorded: list[RecordedRank], path: Path) -> Manifest:
    """Return the manifest of the sounding made from `raw`; `path` is that of the sounding."""
    launch, end = raw.launch, raw.end
    marked = any(process.of("mark") for process in raw.processes)
    return Manifest(
        name=launch.get("name") or path.stem,
        made_by="run" if launch.get("command") else "record",
        created_ns=launch.get("start_ns") or time.time_ns(),
        command=[str(word) for word in launch.get("command") or []],
        exit_status=end.get("exit_status"),
        ended=_ended(end.get("ended"), raw.processes, marked),
        ranks=[entry.rank for entry in recorded],
        phases=[phase for entry in recorded for phase in entry.phases],
        versions=_versions(raw),
        environment={str(name): str(value) for name, value in (launch.get("environment") or {}).items()},
        problems=[problem for entry in recorded for problem in entry.problems]
        + _problems(raw)
        + _others(raw, recorded),
        abstained=[
            *(end.get("abstained") or []),
            *_abstained(raw, marked),
            *(why for entry in recorded for why in entry.abstained),
        ],
    )


def _ended(reported: str | None, processes: list[Process], marked: bool) -> str:
    """Return how the program ended, as its parent reported it.

    Without a report it is `finished` if all processes recorded their end, else `killed`. A nonzero exit
    status is `exception` if a process recorded one, because it may also be intended.
    """
    if reported is None:
        reported = "finished" if processes and all(process.of("end") for process in processes) else "killed"
    ends = [str(end.get("reason")) for process in processes for end in process.of("end")]
    if reported == "exited" and any(reason.startswith(EXCEPTION) for reason in ends):
        return "exception"
    return "no-steps" if reported == "finished" and not marked else reported


def _versions(raw: Raw) -> dict[str, str]:
    versions: dict[str, str] = {}
    for process in raw.processes:
        versions.update(process.head.get("versions") or {})
        if process.head.get("python"):
            versions["python"] = process.head["python"]
    machine = (raw.launch.get("machine") or {}).get("versions") or {}
    return {**{str(name): str(value) for name, value in machine.items() if value is not None}, **versions}


def _problems(raw: Raw) -> list[Problem]:
    problems = [Problem("damaged-record", text) for text in raw.problems]
    torn = sum(process.torn for process in raw.processes)
    if torn:
        problems.append(
            Problem("torn-records", f"{torn} records of the probe are damaged and were left out.", torn)
        )
    if is_of_slower_steps(raw.processes):
        problems.append(Problem("slower-steps", SLOWER_STEPS))
    for what, text in _notes(raw):
        if not _abstains(what):
            problems.append(Problem(what, text))
    return problems


def _abstained(raw: Raw, marked: bool) -> list[dict[str, str]]:
    entries = [{"what": what, "why": text} for what, text in _notes(raw) if _abstains(what)]
    if not marked:
        entries.append({"what": "steps", "why": _why_no_steps(raw)})
    return entries


def _abstains(what: str) -> bool:
    return what.partition(" ")[0] in ABSTAINING


def _others(raw: Raw, recorded: list[RecordedRank]) -> list[Problem]:
    """Return a problem that says how to see each process, if processes without distinct ranks ran steps."""
    count = sum(1 for process in raw.processes if process.of("mark"))
    ranks = {process.rank for process in raw.processes if process.of("mark")}
    if count <= len(ranks):
        return []
    names = {process.pid: PurePath(str(process.head.get("program") or "")).name for process in raw.processes}
    others = [entry.rank for entry in recorded]
    shown = [f"rank {r.rank} is {names.get(r.pid or 0) or 'a program'} (process {r.pid})" for r in others]
    lost = f"; {count - len(recorded)} more are left out" if count > len(recorded) else ""
    text = f"{count} processes ran steps without distinct ranks: {', '.join(shown)}{lost}."
    return [Problem("processes", f"{text} `fathom report --rank N` shows each.")]


def _why_no_steps(raw: Raw) -> str:
    """Return the reason for a recording without steps, with advice, depending on whether torch was loaded."""
    if not any("torch" in (process.head.get("versions") or {}) for process in raw.processes):
        return "no step was recognised; call fathom.step() where one ends, with or without torch"
    return "nothing that marks a step happened twice; call fathom.step() where one ends"


def _notes(raw: Raw) -> list[tuple[str, str]]:
    seen: dict[tuple[str, str], Any] = {}
    for process in raw.processes:
        for note in process.of("note"):
            seen[(str(note.get("what")), str(note.get("text")))] = None
    return list(seen)
