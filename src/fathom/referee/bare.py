"""Run the candidate in a process without any trace of the referee, where it must compute the same."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from fathom.errors import last_line
from fathom.referee import address
from fathom.referee.blocks import sampled
from fathom.referee.compare.decode import Leaf, Saved
from fathom.referee.compare.judge import Judge
from fathom.referee.gate import StoppedError
from fathom.referee.inspecting import Baseline
from fathom.referee.launching import running
from fathom.referee.sides import BASELINE, CANDIDATE, SideError, Sides
from fathom.referee.verdict import Refusal
from fathom.units import NS_PER_S

CODE = "detects-referee"
SLOWER = 3.0  # slowdown relative to the referee, and to the baseline's slowdown, that refuses
OFFSET_NS = 1e6  # allowance for cold caches and clocks
CALLS = 7
LOOK_UP_S = 0.5
_HIDDEN = ("PYTHONPATH", "PYTHONSAFEPATH")

# A script without a file that imports nothing from Fathom, so that a candidate cannot recognise it.
SCRIPT = """
import importlib.util, json, os, random, sys, time
clock = time.perf_counter_ns
job = json.loads(sys.stdin.readline())
for name in job["preload"]:
    __import__(name)
def load(place, name):
    if not place.endswith(".py"):
        __import__(place)
        found = sys.modules[place]
    else:
        stem = place.rpartition("/")[2][:-3]
        sys.path.insert(0, place.rpartition("/")[0])
        if stem not in sys.modules:
            spec = importlib.util.spec_from_file_location(stem, place)
            sys.modules[stem] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[stem])
        found = sys.modules[stem]
    for part in name.split("."):
        found = getattr(found, part)
    return found
make, function = load(*job["inputs"]), load(*job["target"])
import numpy as np
def given(seed):
    random.seed(seed), np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    found = make(seed)
    if isinstance(found, dict):
        return (), found
    if isinstance(found, tuple) and [type(part) for part in found] == [tuple, dict]:
        return found
    return (found if isinstance(found, tuple) else (found,)), {}
def wait():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
def flat(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]
times = []
for seed in job["seeds"]:
    args, kwargs = given(seed)
    wait()
    begin = clock()
    result = function(*args, **kwargs)
    wait()
    times.append(clock() - begin)
leaves = []
with open(job["path"], "wb") as file:
    for leaf in flat(result):
        if "torch" in sys.modules and isinstance(leaf, sys.modules["torch"].Tensor):
            torch = sys.modules["torch"]
            data = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        elif hasattr(leaf, "tobytes"):
            data = np.ascontiguousarray(leaf).tobytes()
        elif isinstance(leaf, (bool, int, float, complex)) and np.asarray(leaf).dtype.kind != "O":
            data = np.asarray(leaf).tobytes()
        else:
            data = repr(leaf).encode()
        leaves.append(file.write(data))
print(json.dumps({"leaves": leaves, "times": times}), file=open(job["path"] + ".json", "w"))
"""


def behaves_differently(sides: Sides, baseline: Baseline, judge: Judge, seed: int) -> list[Refusal]:
    """Return reasons to refuse a candidate that fails, computes something else, or is much slower there."""
    try:
        theirs, slow_baseline, _ = _both(sides, BASELINE, seed)
    except SideError:
        return []  # the baseline does not run there either, so there is nothing to compare with
    try:
        mine, slow, bare = _both(sides, CANDIDATE, seed)
    except SideError as error:
        return [Refusal(CODE, f"without the referee, {error}")]
    alone = _substituted(mine, bare)
    if alone is None:
        return [Refusal(CODE, "its result has a different form without the referee")]
    wrong = judge.judge(alone, theirs, baseline.reference.of(seed, theirs))
    if wrong:
        return [Refusal(CODE, f"without the referee, {wrong[0].detail}")]
    if _slower(slow, slow_baseline):
        with sides.turn.exclusive():  # other proofs may have slowed it down
            _, slow_baseline, _ = _both(sides, BASELINE, seed)
            _, slow, _ = _both(sides, CANDIDATE, seed)
    if _slower(slow, slow_baseline):
        return [Refusal(CODE, f"it takes {slow:.1f} times as long without the referee")]
    return []


def _slower(slow: float, baseline: float) -> bool:
    return slow > SLOWER and slow > SLOWER * baseline


def _both(sides: Sides, side: str, seed: int) -> tuple[Saved, float, list[bytes]]:
    """Return a side's result under the referee, its slowdown without it, and its result without it."""
    seeds = [*range(seed + 1, seed + CALLS), seed]
    with sides.start(side) as worker:
        times = []
        for number in seeds:
            worker.ask("place", seeds=[number])
            times.append(sampled(worker, latency="included"))
        saved = sides.save(worker, 0, seed)
    target = str(sides.pair.plain if side == BASELINE else sides.pair.tuned)
    alone, data = run_bare(sides, target, seeds)
    fastest = min(sample.host_ns or sample.ns for sample in times)
    return saved, min(alone) / (fastest + OFFSET_NS), data


def run_bare(sides: Sides, target: str, seeds: list[int]) -> tuple[list[float], list[bytes]]:
    """Return the ns of each call, and the bytes of each leaf of the last result. Raises SideError."""
    spec = sides.spec(target)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        job = {
            "preload": spec["preload"],
            "inputs": address.split(spec["inputs"]),
            "target": address.split(target),
            "seeds": seeds,
            "path": str(path),
        }
        environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        _finished(json.dumps(job) + "\n", environment, sides)
        answer = json.loads((path.parent / "x.json").read_text())
        data = path.read_bytes()
    sizes = answer["leaves"]
    leaves = [data[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]
    return answer["times"], leaves


def _finished(job: str, environment: dict[str, str], sides: Sides) -> None:
    """Run the script until it ends. Raises SideError, TooLongError, StoppedError."""
    status, errors = ended([sys.executable, "-c", SCRIPT], job, environment, sides)
    if status:
        raise SideError("raises", f"it ends with status {status}: {last_line(errors)[:200]}")


def ended(command: list[str], job: str, environment: dict[str, str], sides: Sides) -> tuple[int, str]:
    """Run a command on `job`; return status and errors. Raises SideError, TooLongError, StoppedError."""
    pipe = subprocess.PIPE
    options = {"stdin": pipe, "stdout": subprocess.DEVNULL, "stderr": pipe, "text": True, "env": environment}
    with sides.turn.shared(), running(command, **options) as process:
        sides.turn.started(process.pid)
        errors = _waited(process, job, sides)
    return process.returncode, errors


def _waited(process: subprocess.Popen[str], job: str, sides: Sides) -> str:
    """Wait for the process and return its standard error. Polls, so that the proof can be stopped."""
    turn, given = sides.turn, [job]
    until = turn.now_ns() + NS_PER_S * sides.patience_s
    while turn.left_s() and turn.now_ns() < until:
        if select.select(turn.closing, [], [], 0)[0]:
            raise StoppedError
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(given.pop() if given else None, timeout=LOOK_UP_S)[1]
    raise SideError("hangs", f"it gave no answer within {sides.patience_s:g} s")


def _substituted(saved: Saved, data: list[bytes]) -> Saved | None:
    """Return `saved` with `data` as its result; None if the sizes differ."""
    own = [leaf for leaf in saved.leaves if leaf.place.startswith("result")]
    if len(own) != len(data) or any(len(a.data) != len(b) for a, b in zip(own, data, strict=True)):
        return None
    others = saved.leaves[len(own) :]
    changed = [Leaf(leaf.form, raw) for leaf, raw in zip(own, data, strict=True)]
    return Saved([*changed, *others], saved.mutated, saved.aliases, saved.inputs)
