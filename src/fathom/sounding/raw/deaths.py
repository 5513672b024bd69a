"""Ranks that ended badly, or never reached a step, and how."""

from __future__ import annotations

from collections.abc import Mapping

from fathom.probe.ending import EXCEPTION
from fathom.sounding.manifest import Problem
from fathom.sounding.raw.folder import Process

RANK_DIED = "rank-died"  # id of the problem
INTERRUPTED = f"{EXCEPTION}KeyboardInterrupt"


def deaths(ranks: Mapping[int, Process], stopped: bool) -> list[Problem]:
    """Return a problem for each rank of a job that ended by a signal or an exception, the first one first.

    A process that a signal killed leaves no record of its end. `stopped`: Fathom or the launcher ended
    them, so missing ends and interruptions mean nothing.
    """
    if all((process.head.get("world") or 1) < 2 for process in ranks.values()):
        return []
    died = [(_last_ns(process), number, process) for number, process in ranks.items() if process.of("mark")]
    problems = []
    for _, number, process in sorted(died, key=lambda entry: entry[:2]):
        how = _how(process, stopped)
        if how:
            counted = [record["k"] + record["n"] for record in process.of("summary")]
            step = max([process.of("mark")[-1]["k"], *counted])
            text = f"Rank {number} {how}; the last step that it recorded is {step}."
            problems.append(Problem(RANK_DIED, text))
    return problems


def without_steps(processes: list[Process]) -> dict[int | str, str]:
    """Return why ranks that left records have no steps, by rank."""
    reasons: dict[int | str, str] = {}
    for process in processes:
        rank = process.head.get("rank")
        if rank is not None and not process.of("mark"):
            how = _how(process, stopped=False)
            reasons.setdefault(rank, f"reached no step{f': it {how}' if how else ''}")
    return reasons


def _how(process: Process, stopped: bool) -> str:
    """Return how a process died, or an empty string if it ended normally."""
    if not process.of("end"):
        return "" if stopped else "was killed by a signal or crashed"
    reason = str(process.of("end")[-1].get("reason"))
    if not reason.startswith(EXCEPTION) or (stopped and reason == INTERRUPTED):
        return ""
    return f"ended with the exception {reason.removeprefix(EXCEPTION)}"


def _last_ns(process: Process) -> int:
    """Return when the process last showed a sign of life."""
    ends = [int(end.get("ns") or 0) for end in process.of("end")]
    counted = [int(record["end"]) for record in process.of("summary")]
    return max([int(process.of("mark")[-1]["ns"]), *ends, *counted])
