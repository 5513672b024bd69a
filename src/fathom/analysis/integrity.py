"""Find problems of a recording that only analysis can detect."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis import results
from fathom.analysis.causes import LAUNCH
from fathom.analysis.device import DeviceWork
from fathom.analysis.intervals import covered, union
from fathom.analysis.ledger import Ledger
from fathom.analysis.results import Integrity
from fathom.analysis.windows import Windows
from fathom.sounding import Manifest, Problem

ROUNDING_NS = 1000  # older profilers round times to this


def integrity_of(manifest: Manifest, problems: list[Problem]) -> Integrity:
    """Return all problems of a recording; `ok` is False if one of them may make a sum wrong."""
    every = [*manifest.problems, *problems]
    rows = [results.Problem(p.what, p.text, p.count, p.rank, list(p.spoils)) for p in every]
    return Integrity(not any(p.spoils for p in every), rows)


def check_timeline(lost: int) -> list[Problem]:
    """Return a problem if the profiler lost `lost` steps: it recorded no runtime calls in their bursts."""
    if not lost:
        return []
    text = f"{lost} recorded steps contain no driver calls: the profiler lost them, and they are left out."
    return [Problem("timeline-lost", text, lost, spoils=["kernels", "launches"])]


def check_device(work: DeviceWork, ledger: Ledger, device: str) -> list[Problem]:
    """Return the problems of one device's ledger."""
    checks = (_without_work(work, ledger.windows, device), _early(work, device))
    return [problem for problem in checks if problem is not None] + _windows(ledger, device)


def check_processor(calls: pl.DataFrame, ledger: Ledger, device: str) -> list[Problem]:
    """Return the problems of a processor's ledger, in which no runtime call in `calls` should launch work."""
    count = calls.filter(pl.col("api").str.contains(LAUNCH)).height
    problems = _windows(ledger, device)
    if count:
        text = f"{count} calls launched work on a device, but the recording holds none of that work."
        problems.append(Problem("device-work-missing", text, count, spoils=["kernels"]))
    return problems


def _windows(ledger: Ledger, device: str) -> list[Problem]:
    """Return a problem for each window that does not tile its burst or whose entries miss its length."""
    checks = (_untiled(ledger.windows, device), _unbalanced(ledger, device))
    return [problem for problem in checks if problem is not None]


def _without_work(work: DeviceWork, windows: Windows, device: str) -> Problem | None:
    busy = covered(union(work.starts, work.ends), windows.starts, windows.ends)
    count = int((windows.used & (busy == 0)).sum())
    if not count:
        return None
    steps = int(windows.used.sum())
    where = "in others" if count < steps else "outside of them"
    text = f"{count} of {steps} steps contain no work of {device}, although it worked {where}."
    return Problem("step-without-device-work", text, count, spoils=["kernels"])


def _early(work: DeviceWork, device: str) -> Problem | None:
    count = int((work.known & (work.launched > work.starts + ROUNDING_NS)).sum())
    if not count:
        return None
    text = f"{count} pieces of work on {device} began before their launch: its clock and the host's differ."
    return Problem("early-start", text, count, spoils=["kernels", "launches"])


def _untiled(windows: Windows, device: str) -> Problem | None:
    follows = windows.bursts[1:] == windows.bursts[:-1]
    count = int((follows & (windows.starts[1:] != windows.ends[:-1])).sum())
    if not count:
        return None
    return Problem(
        "windows-apart", f"{count} windows of {device} do not meet the next one.", count, spoils=["steps"]
    )


def _unbalanced(ledger: Ledger, device: str) -> Problem | None:
    windows = ledger.windows
    sums = np.zeros(len(windows.starts), np.int64)
    np.add.at(sums, ledger.rows["window"].to_numpy(), ledger.rows["ns"].to_numpy())
    count = int((sums != windows.ends - windows.starts).sum())
    if not count:
        return None
    text = f"The entries of {count} windows of {device} do not sum to the window: this is a bug in Fathom."
    return Problem("ledger-unbalanced", text, count, spoils=["kernels", "ops"])
