"""Run the program under ncu, and explain failures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fathom.errors import FathomError
from fathom.recorder.command import resolve_command
from fathom.recorder.launch import RAW, flush_output

if TYPE_CHECKING:
    from fathom.recorder.dive.choosing import Target

VARIABLE = "FATHOM_NCU"
_WHY = ("SourceCounters", "WarpStateStats", "SchedulerStats", "LaunchStats", "Occupancy")
_MEMORY = ("MemoryWorkloadAnalysis_Tables", "InstructionStats", "WorkloadDistribution")
# ncu's sets, with additional sections. `source` is ours: only the sections that show where warps wait.
SETS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "detailed": ("detailed", (*_WHY, *_MEMORY)),
    "full": ("full", (*_WHY, *_MEMORY)),
    "source": (None, (*_WHY, "SpeedOfLight")),
}


class CannotProfileError(FathomError):
    """ncu left no result; the message says why, and what to do."""


_STATUS = re.compile(r"returned an error code \((-?\d+)\)")
_ERROR = re.compile(r"==ERROR==\s*(.+)")


def find_ncu(environment: Mapping[str, str] = os.environ) -> str:
    """Find ncu by FATHOM_NCU (a file or folder), on PATH, or beside CUDA. Raises CannotProfileError."""
    named = environment.get(VARIABLE)
    path = environment.get("PATH", "")
    wanted = [named, os.path.join(named, "ncu")] if named else ["ncu", "/usr/local/cuda/bin/ncu"]  # noqa: PTH118
    for name in wanted:
        if ncu := shutil.which(name, path=path):
            return ncu
    where = f"FATHOM_NCU={named} is not ncu" if named else "ncu is not on PATH"
    raise CannotProfileError(
        f"{where}; install Nsight Compute (it comes with the CUDA toolkit), or set FATHOM_NCU to its ncu."
    )


def ncu_command(ncu: str, target: Target, sections: str, report: Path, log: Path) -> list[str]:
    """Return ncu's part of the command line: profile the target's launches with unlocked clocks, warm caches.

    Options: https://docs.nvidia.com/nsight-compute/NsightComputeCli (2025.3).
    """
    own, more = SETS[sections]
    wanted = ["--set", own] if own else []
    for section in more:
        wanted += ["--section", section]
    which = ["--kernel-name-base", target.base, "--kernel-name", f"regex:{target.pattern}"]
    which += ["--launch-skip", str(target.skip), "--launch-count", str(target.count), "--kill", "yes"]
    how = ["--clock-control", "none", "--cache-control", "none", "--target-processes", "all"]
    how += ["--graph-profiling", "node", "--import-source", "yes"]
    files = ["--export", str(report), "--force-overwrite", "--log-file", str(log)]
    return [ncu, *how, *which, *wanted, *files]


def profile(
    target: Target,
    command: list[str],
    sections: str,
    folder: Path,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Run `command` under ncu and return the report in `folder`. Raises CannotProfileError."""
    ncu = find_ncu(environment)
    path, words = resolve_command(command, environment)
    report, log = folder / "kernel.ncu-rep", folder / "ncu.log"
    arguments = [*ncu_command(ncu, target, sections, report, log), path, *words[1:]]
    own = {name: value for name, value in environment.items() if name != RAW}
    flush_output()
    try:
        status = subprocess.run(arguments, env=own, check=False).returncode
    except OSError as error:
        raise CannotProfileError(f"{ncu} cannot be run: {error.strerror}.") from None
    if report.is_file() and report.stat().st_size:
        return report
    raise CannotProfileError(_why_nothing(target, status, _text(log)))


@cache
def _refusals() -> list[dict[str, str]]:
    from fathom.data import load

    return load(__package__, "refusals")


def _text(log: Path) -> str:
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""


def _why_nothing(target: Target, status: int, said: str) -> str:
    for refusal in _refusals():
        if re.search(refusal["said"], said):
            return f"{target.family} was not profiled: {refusal['means']}."
    failed = _STATUS.search(said)
    if failed:
        return (
            f"The program failed under ncu with status {failed[1]} before {target.family} was profiled; "
            "check that it runs by itself on this machine, and give its command after --."
        )
    if "No kernels were profiled" in said:
        return (
            f"The program ended before launch {target.skip} of {target.family}; choose an "
            "earlier one with --launch, or let the program run longer with a command after --."
        )
    first = _ERROR.search(said)
    why = (
        f"ncu said: {first[1].strip().rstrip('.')}"
        if first
        else f"ncu exited with status {status} and without a report"
    )
    return f"{target.family} was not profiled: {why}."


def as_csv(report: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Write ncu's printed report as CSV beside the report, for machines without ncu's Python reader."""
    table = report.with_suffix(".csv")
    printed = ["--page", "raw", "--csv", "--print-units", "base"]
    command = [find_ncu(environment), "--import", str(report), *printed]
    try:
        with table.open("w") as sink:
            done = subprocess.run(command, stdout=sink, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise CannotProfileError(f"ncu's report {report} could not be read: {error.strerror}.") from None
    if done.returncode or not table.stat().st_size:
        raise CannotProfileError(
            f"ncu could not read its own report (status {done.returncode}); profile again."
        )
    return table
