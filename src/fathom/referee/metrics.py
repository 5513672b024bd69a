"""What whole programs leave behind: a loss curve, final weights, tokens; compared run by run."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fathom.referee.compare.errors import errors
from fathom.referee.compare.tolerance import tolerance
from fathom.referee.verdict import Agreement, Reason
from fathom.referee.worker import SideError

Metrics = dict[str, np.ndarray]
SPREAD = 3.0  # times what the baseline's own runs differ by
_DAMAGED = (  # RuntimeError: RecursionError and NotImplementedError, too
    *(EOFError, KeyError, MemoryError, OverflowError, RuntimeError, SyntaxError, TypeError, ValueError),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
_LOSSES = ("loss", "perplexity")


def read_metrics(path: Path) -> Metrics:
    """Arrays by name from a `.npz` file, else from a JSON object. Raises SideError: there is nothing in it
    that could be compared."""
    if path.exists() and not path.is_file():  # reading a pipe would not end
        raise _unusable(path, "is no file")
    try:
        content = _npz(path) if path.suffix == ".npz" else json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _unusable(path, "was not written; both programs must write it") from None
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror or 'damaged'})") from None
    except _DAMAGED:
        raise _unusable(path, f"is no {'npz' if path.suffix == '.npz' else 'JSON'}") from None
    if not isinstance(content, dict):
        raise _unusable(path, "holds no arrays by name")
    found = {str(name): _array(path, name, values) for name, values in content.items()}
    if not any(array.size for array in found.values()):
        raise _unusable(path, "holds no number")
    return found


def _npz(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path):  # else numpy takes a pickle, or a single array, for what it is
        pass
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _array(path: Path, name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise _unusable(path, f"holds '{name}', which is no array of numbers")
    return array


def _unusable(path: Path, why: str) -> SideError:
    return SideError("no-metrics", f"{path} {why}")


def differences(
    baseline: Sequence[Metrics], candidate: Sequence[Metrics], agree: float | None = None
) -> tuple[list[Reason], list[Agreement]]:
    """Reasons, and how near each array is.

    Runs of one program differ, and their scatter is the tolerance: the candidate's distance from the mean of
    the baseline's runs may be three times the largest between two of those, and never less than
    rounding allows, nor than `agree`, a share that a pair declares. Integers (tokens) must be equal where the
    baseline's runs agree on them.
    """
    reasons, agreement = [], []
    for name in sorted({name for run in (*baseline, *candidate) for name in run}):
        forms = {run[name].shape if name in run else None for run in (*baseline, *candidate)}
        if len(forms) > 1:
            reasons.append(Reason("contract", f"{name} is missing or has another shape in some runs"))
            continue
        theirs, mine = ([run[name] for run in runs] for runs in (baseline, candidate))
        exact = theirs[0].dtype.kind in "biu"
        found, why = _exact(name, theirs, mine) if exact else _near(name, theirs, mine, agree or 0.0)
        agreement.append(found)
        reasons += [Reason(_code(name), why)] if why else []
    return reasons, agreement


def _code(name: str) -> str:
    return "other-losses" if any(word in name.lower() for word in _LOSSES) else "other-weights"


def _exact(name: str, theirs: list[np.ndarray], mine: list[np.ndarray]) -> tuple[Agreement, str]:
    found = Agreement(name, str(theirs[0].dtype), len(mine), None, None, None, None)
    repeatable = all(np.array_equal(theirs[0], other) for other in theirs)
    wrong = max(int(np.count_nonzero(theirs[0] != other)) for other in mine)
    return found, f"{wrong} of {theirs[0].size} numbers of {name} differ" if repeatable and wrong else ""


def _near(name: str, theirs: list[np.ndarray], mine: list[np.ndarray], agree: float) -> tuple[Agreement, str]:
    middle = np.mean([np.asarray(run, float) for run in theirs], axis=0)
    apart = [errors(a, np.asarray(b, float)).norm for a, b in combinations(theirs, 2)]
    rounding = tolerance("float32", middle.size, middle.size)
    allowed = max(SPREAD * max(apart, default=0.0), rounding.norm if rounding else 0.0, agree)
    seen = max((errors(run, middle) for run in mine), key=lambda found: found.norm)
    whole = all(np.isfinite(run).all() for run in mine) or not np.isfinite(middle).all()
    found = Agreement(
        name, str(theirs[0].dtype), len(mine), seen.norm, allowed, seen.worst, None, max(apart, default=0.0)
    )
    if not whole:
        return found, f"{name} has NaN or infinities"
    return (
        found,
        "" if seen.norm <= allowed else f"{name} is {seen.norm:.1e} away, {allowed:.1e} is the scatter",
    )
