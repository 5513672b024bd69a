"""`python -m fathom.referee.child.calls JOB`: call a target with small inputs, under compute-sanitizer.

The file JOB holds a `Job` as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from fathom.referee.address import load
from fathom.referee.child import guards
from fathom.referee.child.values import Call, arguments, leaves, torch
from fathom.referee.protocol import Spec
from fathom.units import MIB


class Job(Spec):
    """A target to call, and the file that gets the names of the inputs that were used."""

    path: str


MOST_BYTES, SEED = 16 * MIB, 1  # checks slow kernels down ten- to a hundredfold
INPUTS = "inputs"


def main() -> None:
    """Call the target with its smallest inputs and all others that are small enough."""
    job: Job = json.loads(Path(sys.argv[1]).read_text())
    del sys.argv[1:]
    for name in job["preload"]:
        importlib.import_module(name)
    chosen = _chosen(_calls(job))
    target = load(job["target"])
    for args, kwargs in chosen.values():
        target(*args, **kwargs)
        _wait()
    Path(job["path"]).write_text(json.dumps(list(chosen)))


def _calls(job: Job) -> dict[str, Call]:
    guards.seed_everything(SEED)
    calls = {INPUTS: arguments(load(job["inputs"])(SEED))}
    if variants := job.get("variants"):
        guards.seed_everything(SEED)
        calls |= {name: arguments(given) for name, given in load(variants)(SEED).items()}
    return calls


def _chosen(calls: dict[str, Call]) -> dict[str, Call]:
    sizes = {name: sum(int(getattr(leaf, "nbytes", 0)) for _, leaf in leaves(c)) for name, c in calls.items()}
    least = min(sizes.values())
    return {name: call for name, call in calls.items() if sizes[name] <= max(least, MOST_BYTES)}


def _wait() -> None:
    lib = torch()
    if lib is not None and lib.cuda.is_initialized():
        lib.cuda.synchronize()


if __name__ == "__main__":
    main()
