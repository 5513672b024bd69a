"""How the recording went: the manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from fathom.sounding.manifest import Manifest, Phase, Problem, Rank
from fathom.sounding.raw.folder import Process, Raw

EXCEPTION = "exception "  # how the probe's reason for such an end begins
# Notes that say what could not be looked at; all others are problems of the recording.
ABSTAINING = (
    "memory",
    "timeline",
    "attribution",
    "counters",
    "settle",
    "own-profiler",
    "no-steps",
    "interrupted",
    "what-if",
)


@dataclass
class Recorded:
    """What one rank's records came to."""

    rank: Rank
    phases: list[Phase]
    problems: list[Problem] = field(default_factory=list)
    abstained: list[dict[str, str]] = field(default_factory=list)


def manifest(raw: Raw, recorded: list[Recorded], path: Path) -> Manifest:
    """The manifest of a sounding made of `raw`."""
    launch, end = raw.launch, raw.end
    marked = any(process.of("mark") for process in raw.processes)
    return Manifest(
        name=launch.get("name") or path.stem,
        made_by="run" if launch.get("command") else "record",
        created_ns=launch.get("start_ns") or time.time_ns(),
        command=[str(word) for word in launch.get("command") or []],
        exit_status=end.get("exit_status"),
        ended=_ended(end.get("ended"), raw.processes, marked),
        ranks=[one.rank for one in recorded],
        phases=[phase for one in recorded for phase in one.phases],
        versions=_versions(raw),
        environment={str(name): str(value) for name, value in (launch.get("environment") or {}).items()},
        problems=[problem for one in recorded for problem in one.problems]
        + _problems(raw)
        + _others(raw, recorded),
        abstained=[
            *(end.get("abstained") or []),
            *_abstained(raw, marked),
            *(why for one in recorded for why in one.abstained),
        ],
    )


def _ended(told: str | None, processes: list[Process], marked: bool) -> str:
    """What the parent saw; where it saw nothing, whether the processes came to their end in order.

    A status other than 0 says that the program failed or wanted to say so; its process knows which.
    """
    if told is None:
        told = "finished" if processes and all(process.of("end") for process in processes) else "killed"
    ends = [str(end.get("reason")) for process in processes for end in process.of("end")]
    if told == "exited" and any(reason.startswith(EXCEPTION) for reason in ends):
        return "exception"
    return "no-steps" if told == "finished" and not marked else told


def _versions(raw: Raw) -> dict[str, str]:
    found: dict[str, str] = {}
    for process in raw.processes:
        found.update(process.head.get("versions") or {})
        if process.head.get("python"):
            found["python"] = process.head["python"]
    machine = (raw.launch.get("machine") or {}).get("versions") or {}
    return {**{str(name): str(value) for name, value in machine.items() if value is not None}, **found}


def _problems(raw: Raw) -> list[Problem]:
    found = [Problem("damaged-record", text) for text in raw.problems]
    torn = sum(process.torn for process in raw.processes)
    if torn:
        found.append(
            Problem("torn-records", f"{torn} records of the probe are damaged and were left out.", torn)
        )
    for what, text in _notes(raw):
        if not _abstains(what):
            found.append(Problem(what, text))
    return found


def _abstained(raw: Raw, marked: bool) -> list[dict[str, str]]:
    found = [{"what": what, "why": text} for what, text in _notes(raw) if _abstains(what)]
    if not marked:
        found.append({"what": "steps", "why": _why_no_steps(raw)})
    return found


def _abstains(what: str) -> bool:
    return what.partition(" ")[0] in ABSTAINING


def _others(raw: Raw, recorded: list[Recorded]) -> list[Problem]:
    """Whether processes that are no ranks of one program ran steps, and how each is seen."""
    count = sum(1 for process in raw.processes if process.of("mark"))
    ranks = {process.rank for process in raw.processes if process.of("mark")}
    if count <= len(ranks):
        return []
    names = {process.pid: PurePath(str(process.head.get("program") or "")).name for process in raw.processes}
    shown = [
        f"rank {one.rank.rank} is {names.get(one.rank.pid or 0) or 'a program'} (process {one.rank.pid})"
        for one in recorded
    ]
    lost = f"; {count - len(recorded)} more are left out" if count > len(recorded) else ""
    text = f"{count} processes ran steps without ranks of their own: {', '.join(shown)}{lost}."
    return [Problem("processes", f"{text} `fathom report --rank N` shows each.")]


def _why_no_steps(raw: Raw) -> str:
    """What to do about it: nothing that Fathom hooks repeated, or nothing of Fathom was in the program."""
    if not any("torch" in (process.head.get("versions") or {}) for process in raw.processes):
        return "no step was recognised; call fathom.step() where one ends, with or without torch"
    return "nothing that marks a step happened twice; call fathom.step() where one ends"


def _notes(raw: Raw) -> list[tuple[str, str]]:
    seen: dict[tuple[str, str], Any] = {}
    for process in raw.processes:
        for note in process.of("note"):
            seen[(str(note.get("what")), str(note.get("text")))] = None
    return list(seen)
