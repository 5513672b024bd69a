"""Let each system call of the probe fail, in turn: the program's output and status must stay the same.

    python -m benchmarks.unusual.failing [CASE...]

The first, middle and last call of each kind fails once (EIO), or from then on (ENOSPC). The sounding must
have all steps, or a line must say what is missing. Kineto's files, which torch writes itself, are missing
(EIO) or cut off (ENOSPC).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.unusual.compare import ADDRESS, HERE, Outcome, command, environment, outcome, readable
from fathom.machine import known_machine
from fathom.recorder import Plan, finish, record

RESULT = HERE.parent / "results" / "failing.json"
CASES = {  # plan, and the steps that the sounding must hold
    "tiny_steps": (Plan(count_after=200), 200),
    "threads": (Plan(), 8_000),  # of 12,000: the first thread begins the recording while others go on
    "fork": (Plan(max_size=10**8), 118),
    "training_loop": (Plan(), 118),
}
MODES = {"EIO": "", "ENOSPC": "+"}  # error: whether all later calls of the kind fail too
NONE = "none 1 EIO"
ENVIRONMENT = environment()  # before polars adds a variable
_machine: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """A recorded run: its outcome, its steps or None if they cannot be read, and the calls of each kind."""

    outcome: Outcome
    steps: int | None
    calls: Counter[str]


@contextmanager
def output_to(folder: Path) -> Iterator[None]:
    """Redirect the output of this process and its children to `folder / "1"` and `folder / "2"`."""
    sys.stdout.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            file = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        yield
    finally:
        for number, file in kept.items():
            os.dup2(file, number)
            os.close(file)


def close_on_exec() -> None:
    """Let children inherit only the standard files, as those that `subprocess` starts."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            if int(name) > 2:
                os.set_inheritable(int(name), False)


def variables(folder: Path, fault: str = NONE) -> dict[str, str]:
    """Return the environment of a run in which `fault` happens."""
    path = os.pathsep.join((str(HERE / "shim"), ENVIRONMENT["PYTHONPATH"]))
    return {**ENVIRONMENT, "PYTHONPATH": path, "FAULT": fault, "CALLS": str(folder / "calls")}


def target(fault: str) -> str:
    """Return the name of the sounding."""
    return f"{fault.replace(' ', '-')}.fathom"


def run(case: str, folder: Path, fault: str = NONE) -> Run:
    """Record the program of a case in `folder` while `fault` happens."""
    words, place = command(case), folder / target(fault)
    (folder / "calls").unlink(missing_ok=True)
    ended, steps = recorded(words, folder, place, variables(folder, fault), CASES[case][0])
    ended = replace(ended, out=ended.out.replace(fault, "FAULT"))
    calls = (folder / "calls").read_text().split() if (folder / "calls").exists() else ()
    return Run(ended, steps, Counter(calls))


def recorded(
    words: list[str], folder: Path, place: Path, env: dict[str, str], plan: Plan | None = None
) -> tuple[Outcome, int | None]:
    """Record a command to the sounding `place`; return its outcome and steps, None if they are unreadable."""
    if not _machine:
        _machine.update(known_machine())
    said: list[str] = []
    work = folder / "work"
    work.mkdir(exist_ok=True)
    close_on_exec()
    with output_to(folder), in_folder(work):
        made = record(
            words, plan or Plan(), place, machine=lambda: _machine, environment=env, say=said.append
        )
    finish(place, say=said.append)
    ended = made.ending
    status = (ended.exit_status or 0) if ended.signal_number is None else -ended.signal_number
    out, err = (ADDRESS.sub("0x", (folder / name).read_text(errors="replace")) for name in ("1", "2"))
    lines = err.splitlines(keepends=True)
    said += [line for line in lines if line.startswith("fathom: ")]
    theirs = "".join(line for line in lines if not line.startswith("fathom: "))
    try:
        steps: int | None = readable(place)
    except Exception:
        steps = None
    return Outcome(status, out, theirs, tuple(said)), steps


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    """Change to `folder`."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def places(calls: Counter[str]) -> list[str]:
    """Return the faults: the first, middle and last call of each kind."""
    return [
        f"{kind} {number}{further} {error}"
        for kind, most in sorted(calls.items())
        for number in sorted({1, (most + 1) // 2, most})
        for error, further in MODES.items()
    ]


def parting(first: Outcome, second: Outcome) -> str:
    """Return the second output from where it differs."""
    before, after = first.out + first.err, second.out + second.err
    at = len(os.path.commonprefix([before, after]))  # noqa: RUF071
    return after[max(at - 60, 0) : at + 200]


def judge(case: str, folder: Path, fault: str, plain: Outcome) -> list[str]:
    """Return what is wrong after `fault`."""
    done = run(case, folder, fault)
    now, wrong = done.outcome, []
    if (now.status, now.out, now.err) != (plain.status, plain.out, plain.err):
        wrong.append(f"status {plain.status} → {now.status}, output {parting(plain, now)!r}")
    if any("Traceback" in line for line in now.said):
        wrong.append("a traceback")
    if done.steps is None:
        wrong.append("the sounding cannot be read")
    elif not now.said and done.steps < CASES[case][1]:
        wrong.append(f"{done.steps} steps, and no line says why")
    return wrong


def without(case: str, folder: Path) -> Outcome:
    """Return the outcome of the program without Fathom."""
    return outcome(command(case), folder, {**variables(folder), "FAULT": "FAULT"})


def every_place(case: str) -> dict[str, list[str]]:
    """Return what is wrong after each fault of a program's recording."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        plain = without(case, folder)
        results = {}
        for fault in places(run(case, folder).calls):
            results[fault] = judge(case, folder, fault, plain)
            shutil.rmtree(folder / target(fault), ignore_errors=True)
            if results[fault]:
                print(f"{case}, {fault}: {results[fault]}", flush=True)
        return results


def main() -> int:
    """Try all places in the cases that the command line names, or in all, whose result is kept."""
    results = {case: every_place(case) for case in sys.argv[1:] or CASES}
    faults = sum(map(len, results.values()))
    wrong = {f"{case}: {at}": why for case, tried in results.items() for at, why in tried.items() if why}
    print(
        f"{faults - len(wrong)} of {faults} faults left the program as it was and the sounding complete or"
        " explained"
    )
    if not sys.argv[1:]:
        tried = {case: len(of_case) for case, of_case in results.items()}
        RESULT.write_text(json.dumps({"faults": tried, "wrong": wrong}, indent=1) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
