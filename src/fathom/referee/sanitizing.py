"""Run the candidate's kernels under compute-sanitizer, and read its reports.

memcheck finds accesses outside of allocations, racecheck finds races for shared memory. Both slow kernels
down, so they get small inputs. Where compute-sanitizer cannot run, a note gives the reason.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fathom.errors import last_line
from fathom.machine import toolkit_program
from fathom.referee.bare import ended
from fathom.referee.inspecting import Inspection
from fathom.referee.sides import SideError, Sides
from fathom.referee.verdict import Refusal

TOOL = "compute-sanitizer"
CODES = {"memcheck": "invalid-access", "racecheck": "race"}
WITH_ERRORS = 86  # exit status of a run with errors
MODULE = "fathom.referee.child.calls"
OPTIONS = (
    "--target-processes", "application-only", "--report-api-errors", "no", "--show-backtrace", "no",
    "--print-limit", "10000", "--error-exitcode", str(WITH_ERRORS),
)  # fmt: skip
MARK = "========="
# Kernels of libraries: racecheck reports races in some that synchronise in ways that it does not model.
_LIBRARIES = re.compile(
    r"cublas|cudnn|nvjet|xmma|\bat::native\b|^(volta|turing|ampere|hopper|sm\d+)_|^[sdhc]gemm", re.IGNORECASE
)
_INVALID = re.compile(r"Invalid (?:__)?\w+?(?:__)? (?P<kind>.+?) of size (?P<size>\d+)(?: bytes?)?$")
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: .*?\((\d+) errors?, (\d+) warn)")
_RACE = re.compile(r"(?P<level>\w+): Race reported between (?P<kind>\w+) access at (?P<place>.+)")
_OTHER = re.compile(r"and (?P<kind>\w+) access at (?P<place>.+?)(?: \[[\d,]+ hazards?\])?$")
_LINE = re.compile(r"(?P<file>[^ ]+?):(?P<line>\d+)(?::(?P<kernel>.+))?$")


@dataclass(frozen=True)
class Error:
    """One report: its words, the kernel, and whether the tool only warns of it."""

    says: str
    kernel: str
    warning: bool = False


@dataclass(frozen=True)
class Report:
    """The reports of one run; `failed` says in a clause why there is no result."""

    errors: tuple[Error, ...] = ()
    failed: str = ""


def why_not(device: str) -> str:
    """Return why compute-sanitizer cannot check calls on this device; "" if it can."""
    if device != "cuda":
        return "the pair runs on the CPU"
    return "" if toolkit_program(TOOL) else f"{TOOL} of the CUDA toolkit is not installed"


def sanitize(sides: Sides, device: str, inspection: Inspection, progress: Callable[[str], None]) -> None:
    """Run the candidate under both tools, and add reasons and notes to the inspection."""
    reason = why_not(device)
    if reason:
        inspection.notes.append(f"Not checked with {TOOL}: {reason}.")
        return
    for tool, code in CODES.items():
        progress(f"checking with {tool}")
        report = _run(tool, str(sides.pair.tuned), sides)
        if report.failed:
            inspection.notes.append(f"{tool} gave no result: {report.failed}.")
            continue
        errors = [error for error in report.errors if not error.warning and not _is_librarys(tool, error)]
        if errors:
            known = {error.kernel for error in _run(tool, str(sides.pair.plain), sides).errors}
            _add(tool, code, errors, known, inspection)
        others = [error for error in report.errors if error not in errors]
        if others:
            inspection.notes.append(f"{described(tool, others)}, which does not refuse it.")


def _is_librarys(tool: str, error: Error) -> bool:
    return tool == "racecheck" and _LIBRARIES.search(error.kernel) is not None


def _add(tool: str, code: str, errors: list[Error], known: set[str], inspection: Inspection) -> None:
    """Add a reason for errors in kernels in which the baseline has none, else a shared one."""
    own = [error for error in errors if error.kernel not in known]
    for chosen, reasons in ((own, inspection.reasons), ([] if own else errors, inspection.shared)):
        if chosen:
            reasons.append(Refusal(code, described(tool, chosen)))


def described(tool: str, errors: list[Error]) -> str:
    """Return the reports in words, the most frequent one with its kernel."""
    from fathom.sounding import short_name  # polars, which a proof without errors does not need

    (first, count), *others = Counter(errors).most_common()
    more = sum(number for _, number in others)
    verb = "warns of" if first.warning else "reported"
    text = f"{tool} {verb} {_counted(count, first.says)} in kernel {short_name(first.kernel)}"
    return text + (f", and {more} other {'error' if more == 1 else 'errors'}" if more else "")


def _counted(count: int, says: str) -> str:
    noun, of, rest = says.partition(" of ")
    return f"{count} {noun}{'' if count == 1 else 's'}{of}{rest}"


# One run


def _run(tool: str, target: str, sides: Sides) -> Report:
    """Run a side's calls under a tool, and return its report."""
    program = toolkit_program(TOOL)
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="fathom-") as folder:
        log, path, job = (Path(folder) / name for name in ("log", "used", "job"))
        job.write_text(json.dumps(sides.spec(target) | {"path": str(path)}))
        command = [program, "--tool", tool, *OPTIONS, "--log-file", str(log)]
        command += [sys.executable, "-m", MODULE, str(job)]
        environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # so that tensors have their ends
        try:
            status, said = ended(command, "", environment, sides)
        except SideError as error:
            return Report(failed=str(error))
        text = log.read_text(errors="replace") if log.exists() else ""
        return judged(text, status, "" if path.exists() else last_line(said)[:200])


def judged(log: str, status: int, failed: str) -> Report:
    """Return the report in a log. `failed`: the message of a run that did not make all calls."""
    lines = [line.removeprefix(MARK).rstrip() for line in log.splitlines() if line.startswith(MARK)]
    summaries = [match for line in lines if (match := _SUMMARY.search(line))]
    if not summaries or any("Device not supported" in line for line in lines):
        said = [line.strip() for line in lines if line.strip() not in ("", "COMPUTE-SANITIZER")]
        return Report(failed=said[0].rstrip(".") if said else failed or f"it ended with status {status}")
    errors = tuple(_errors(lines))
    counted = any(int(number) for match in summaries for number in match.groups()[:2] if number)
    if counted and not any(not error.warning for error in errors):
        return Report(failed="its report has errors of an unknown form")
    if failed and not errors:
        return Report(failed=f"the candidate failed under it, {failed}")
    return Report(errors)


def _errors(lines: list[str]) -> Iterator[Error]:
    """Yield the errors of memcheck and racecheck in a report."""
    for number, line in enumerate(lines):
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if invalid := _INVALID.match(line.strip()):
            yield Error(f"invalid {invalid['kind']} of {invalid['size']} bytes", _place(following[3:])[0])
        elif race := _RACE.match(line.strip()):
            yield _race(race, following)


def _race(first: re.Match[str], following: str) -> Error:
    kernel, line = _place(first["place"])
    says = f"race of a {first['kind'].lower()}{line}"
    if other := _OTHER.match(following):
        says += f" and a {other['kind'].lower()}{_place(other['place'])[1]}"
    return Error(says, kernel, not first["level"].lower().startswith("err"))


def _place(text: str) -> tuple[str, str]:
    """Return the kernel and the line of a place, of the forms `k(int)+0x10 in a.cu:3`, `0x10 in k(int)` and
    `0x10 in a.cu:3:k`.
    """
    before, _, after = text.rpartition(" in ")
    line = _LINE.match(after)
    kernel = re.sub(r"[+:]0x[0-9a-f]+$", "", before or text)
    if kernel.startswith("0x"):
        kernel = (line["kernel"] if line else "") or after
    return kernel, f" at {Path(line['file']).name}:{line['line']}" if line else ""
