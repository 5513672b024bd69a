"""Examine an unfinished recording, in a process of low priority: `python -m fathom.watch.examining`.

`insight FOLDER UNTIL` prints the insight into its steps as JSON, `slowdown FOLDER ONSET` how the steps since
a time compare with those before it. Times are in ns; 0: without this limit.

The raw records are copied first, without the middle of long logs, so that the work does not grow with the
length of the run. What is read is what the probe wrote anyway; the program notices nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fathom.analysis.live import Counted, FoundCause, Insight, Slowdown
from fathom.units import MIB, NS_PER_MS
from fathom.watch.insights import PASSED

if TYPE_CHECKING:
    from fathom.analysis.compare import Run
    from fathom.analysis.results import Examination, Finding
    from fathom.api import Sounding

HEAD, TAIL = 2 * MIB, 2 * MIB  # of a log
SLOW, TIMELINE = "slow", "timeline"  # phases
FREQUENT = ("batches", "batch", "wait", "micro", "device", "samples")  # records of a log for each step
ATTRIBUTION = "attribution"  # the steps of the timeline take ops from this phase
FINDINGS, MEASURES = 8, 3
CLOSE, SHARE = 0.01, 0.1  # of the step, of its change: findings whose cost grew by less are not named


def main(task: str, folder: str, ns: str) -> None:
    """Print the result of a task as JSON."""
    os.nice(19)
    examine = slowdown_since if task == "slowdown" else insight_until
    result: Insight | Slowdown = examine(Path(folder), int(ns))
    sys.stdout.write(msgspec.json.encode(result).decode())


def insight_until(folder: Path, until_ns: int = 0) -> Insight:
    """Return the insight into the steps until a time. Raises FathomError if there are none."""
    with part(folder, until_ns=until_ns) as sounding:
        return insight(sounding)


def slowdown_since(folder: Path, onset_ns: int) -> Slowdown:
    """Return how the steps since a time compare with those before it. Raises FathomError without steps."""
    with part(folder, until_ns=onset_ns) as before, part(folder, since_ns=onset_ns) as after:
        return slowdown(before, after)


@contextmanager
def part(folder: Path, since_ns: int = 0, until_ns: int = 0) -> Iterator[Sounding]:
    """Yield a sounding of the steps between two times, which goes with the block."""
    from fathom.api import Sounding
    from fathom.sounding import import_raw

    with tempfile.TemporaryDirectory(prefix="fathom-watch-") as name:
        to = Path(name) / "part.fathom"
        copy(folder / "raw", to / "raw", since_ns, until_ns)
        yield Sounding(import_raw(to))


def copy(raw: Path, to: Path, since_ns: int = 0, until_ns: int = 0) -> None:
    """Copy the records between two times to the folder `to`, as if the program had been stopped now.

    With `since_ns`, bursts of the phase `slow`, which an alert requests, become the timeline.
    """
    to.mkdir(parents=True)
    for file in raw.iterdir():
        if file.suffix == ".jsonl":
            lines: Iterable[bytes] = _lines(file)
            lines = _within(lines, since_ns, until_ns) if file.name.startswith("proc-") else lines
            with (to / file.name).open("wb") as sink:
                sink.writelines(lines)
        elif file.name.startswith("summary-"):
            if kept := list(_within([file.read_bytes()], since_ns, until_ns)):
                (to / file.name).write_bytes(kept[0])
        elif file.is_file() and file.name != "end.json":
            (to / file.name).symlink_to(file.absolute())
    ending: dict[str, Any] = {
        "exit_status": 0,
        "signal": None,
        "ended": "stopped",
        "end_ns": time.time_ns(),
        "abstained": [],
    }
    (to / "end.json").write_text(json.dumps(ending))


def _lines(file: Path) -> Iterator[bytes]:
    """Yield the complete lines of a log; between its first HEAD and last TAIL bytes, only rare ones."""
    size, position = file.stat().st_size, 0
    with file.open("rb") as stream:
        for line in stream:
            position += len(line)
            if line.endswith(b"\n") and (not HEAD < position < size - TAIL or _is_rare(line)):
                yield line


def _is_rare(line: bytes) -> bool:
    """Return whether a record is about a burst or the whole process, and not about clean steps."""
    kind = line[6:20].partition(b'"')[0].decode(errors="replace")
    return kind not in FREQUENT and not (kind == "marks" and b'"phase":"clean"' in line)


def _within(lines: Iterable[bytes], since_ns: int, until_ns: int) -> Iterator[bytes]:
    for line in lines:
        try:
            record = msgspec.json.decode(line)
            ns, phase = _time(record), record.get("phase")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue  # damaged
        if phase == ATTRIBUTION or ns is None or (ns >= since_ns and (not until_ns or ns <= until_ns)):
            slow = since_ns and phase == SLOW
            yield msgspec.json.encode({**record, "phase": TIMELINE}) + b"\n" if slow else line


def _time(record: dict[str, Any]) -> int | None:
    """Return when the record's steps ran; None for records about the whole process."""
    kind = record.get("t")
    if kind == "marks":
        return int(record["ns"][0])
    if kind == "summary":  # a window belongs to the time in which most of its steps were
        return (int(record["start"]) + int(record["end"])) // 2
    if kind == "batches":
        return int(record["rows"][0][record["columns"].index("start")])
    if kind in ("trace", "samples"):
        return int(_first(record["stop_ns"]))
    if kind in ("wait", "batch"):
        return int(record["start"])
    return int(record["ns"]) if kind in ("micro", "phase") else None


def _first(ns: Any) -> Any:
    return ns[0] if isinstance(ns, list) else ns


def insight(sounding: Sounding) -> Insight:
    result = sounding.examine()
    device = next(iter(result.devices), None)
    used = device.utilisation if device else None
    talks = device.communication if device else None
    return Insight(
        at_ns=time.time_ns(),
        step_ms=result.step.basis_ms if result.step.clean_ms is not None else None,
        headline=result.verdict.headline if result.verdict else "",
        action=result.verdict.action if result.verdict else "",
        mfu=used.mfu if used else None,
        communication_ms=talks.exposed_ms if talks else 0.0 if _has_ledger(result) else None,
        findings=[_cause(finding) for finding in result.findings[:FINDINGS]],
        counters=_counters(sounding) if result.sounding.counters else [],
        abstained="" if _has_ledger(result) else _why(result),
    )


def slowdown(before: Sounding, after: Sounding) -> Slowdown:
    """Return how a sounding compares with an earlier one: entries, causes, and findings that grew."""
    from fathom.analysis.compare import compare

    usual, slow = before.examine(), after.examine()
    result = Slowdown(usual.step.basis_ms or 0.0, slow.step.basis_ms or 0.0)
    grown = result.after_ms - result.before_ms
    if grown <= 0:
        result.why_not = PASSED
        return result
    result.findings = _grown(usual, slow, max(CLOSE * result.after_ms, SHARE * grown))
    lacking = next((side for side in (usual, slow) if not _has_ledger(side)), None)
    if lacking is not None:
        result.why_not = f"no ledger to compare: {_why(lacking)}"
        return result
    compared = compare([_run(before)], [_run(after)])
    result.before_ms, result.after_ms = compared.baseline_ns / NS_PER_MS, compared.candidate_ns / NS_PER_MS
    result.entries, result.causes = compared.moved, compared.causes
    for row in compared.entries:
        result.sums_ms[row.entry] = result.sums_ms.get(row.entry, 0.0) + row.change_ms
    result.why_not = "" if compared.moved else "no entry of the ledger changed by more than noise"
    return result


def _run(part: Sounding) -> Run:
    """Return a part of a recording for a comparison with another part, beside which the same programs ran."""
    return msgspec.structs.replace(part.run(), others=0.0)


def _has_ledger(result: Examination) -> bool:
    return bool(result.devices and result.devices[0].ledger)


def _grown(before: Examination, after: Examination, least_ms: float) -> list[FoundCause]:
    """Return the findings that are new, or cost more than before, by over `least_ms`."""
    costs = {(known.id, known.title): known.gain_ms or 0.0 for known in before.findings}
    return [
        _cause(finding)
        for finding in after.findings[:FINDINGS]
        if (finding.gain_ms or 0.0) - costs.get((finding.id, finding.title), 0.0) > least_ms
    ]


def _cause(finding: Finding) -> FoundCause:
    from fathom.diagnosis import kinds

    kind = kinds().get(finding.id)
    action = kind.action if kind else ""
    return FoundCause(
        finding.id, finding.title, action, finding.gain_ms, finding.share, finding.where.source or ""
    )


def _why(result: Examination) -> str:
    return next((f"{entry.what}: {entry.why}" for entry in result.abstained), "no timeline was recorded yet")


def _counters(sounding: Sounding) -> list[Counted]:
    """Return the first measures of the kernel family with the most time."""
    family = next((portrait for portrait in sounding.kernel() if portrait.measures), None)
    if family is None:
        return []
    used = [measure for measure in family.measures if measure.resource] or family.measures
    return [
        Counted(family.family, measure.name, measure.title, measure.value, measure.unit)
        for measure in used[:MEASURES]
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
