"""Record the suite of faults.

    fathom machine measure                                                 # on the target, once: the ceilings
    python -m tests.faults.record record OUT --minutes 9 --tar faults.tar  # there, until nothing is left
    python -m tests.faults.record finish faults.tar                        # here: into tests/data/faults

`record` needs no library but Python's, PyYAML and what the programs import. A run that ended well is not
repeated; `--minutes` starts none after that time, and the tar holds what is there so far. `--gpus 0,1,2,3`
records on four GPUs at once, each with a quarter of the cores, both forms of a program on the same one, and
`--at-once 3` lets two more start and end on each while one works.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults import parallel
from tests.faults.finish import RAW, TIMES, finish
from tests.faults.labels import FORMS, HERE, Program, Suite, programs

ROOT = HERE.parents[1]
KEPT = ROOT / "tests" / "data" / "faults"
PATIENCE_S = 120  # with a run; as much again for each that it may wait for
COUNTED = 10  # times as many steps where a kernel of its own is at fault: what ails it only counters tell
LOG = "log.txt"


@dataclass(frozen=True)
class Run:
    """One form of one program at one severity."""

    program: Program
    form: str
    severity: int

    @property
    def name(self) -> str:
        return f"{self.program.group}.{self.program.name}.{self.form}.{self.severity}"

    def command(self, folder: Path, options: argparse.Namespace) -> list[str]:
        """The program under `fathom run --raw`."""
        needs = {} if options.small else self.program.fault.needs
        counted = bool(needs.get("cupy"))
        steps = max(options.steps * (COUNTED if counted else 1), needs.get("steps", 0))
        fathom = ["-m", "fathom", "run", "--raw", "--no-measure", "--quiet", "--steps", str(options.windows)]
        fathom += ["--depth", "counters" if counted else "timeline"]
        words = ["--steps", str(steps), "--times", str(folder / TIMES)]
        words += ["--device", "cpu", "--small"] if options.small else []
        program = self.program.command(self.form, self.severity, *words)
        return [sys.executable, *fathom, "-o", str(folder / RAW), "--", *program]


def chosen(options: argparse.Namespace, suite: Suite = programs) -> Iterator[Run]:
    """Both forms next to each other, so that they meet the same machine."""
    for program in suite():
        if options.only and not {program.id, program.name} & set(options.only):
            continue
        if options.group and program.group not in options.group:
            continue
        for severity in options.severity:
            if severity in program.fault.severity:
                yield from (Run(program, form, severity) for form in program.forms if form in options.form)


def unmet(program: Program, small: bool) -> str:
    """Why it cannot run here; empty where it can."""
    needs, cores = program.fault.needs, len(os.sched_getaffinity(0))
    if needs.get("gpu") and not small and not Path("/dev/nvidiactl").exists():
        return "it needs an NVIDIA GPU"
    if needs.get("cupy") and (small or not importlib.util.find_spec("cupy")):
        return "its kernels need cupy and a GPU"
    if not small and needs.get("cores", 0) > cores:
        return f"it needs {needs['cores']} cores, and here are {cores}"
    return ""


def record(options: argparse.Namespace, suite: Suite = programs) -> int:
    """Record what is not recorded yet; 1 where something failed or is left."""
    options.folder.mkdir(parents=True, exist_ok=True)
    until, ends = time.monotonic() + 60 * options.minutes, Counter[str]()

    def attempt(run: Run) -> int:
        end = attempted(run, options, until)
        ends[end] += 1
        return end in ("failed", "left")

    runs = chosen(options, suite)
    if options.gpus:
        bad = parallel.side_by_side(
            runs, lambda run: run.program.family, attempt, options.gpus, options.at_once
        )
    else:
        bad = sum(map(attempt, runs))
    if options.tar:
        bundle(options.folder, options.tar)
    print(f"{ends['failed']} failed, {ends['left']} left")
    return int(bool(bad))


def attempted(run: Run, options: argparse.Namespace, until: float) -> str:
    """How a run ended: well, failed, left (for another time), out (it cannot run here)."""
    if (options.folder / f"{run.name}.tar.xz").exists():
        return "well"
    if why := unmet(run.program, options.small):
        parallel.say(f"{run.name}: left out, {why}")
        return "out"
    if time.monotonic() > until:
        return "left"
    return "well" if recorded(run, options) else "failed"


def recorded(run: Run, options: argparse.Namespace) -> bool:
    """Record one run into OUT/NAME.tar.xz, and say how it went; the log of one that failed stays."""
    folder = options.folder / run.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    start = time.perf_counter()
    status = execute(run.command(folder, options), folder / LOG, PATIENCE_S * options.at_once)
    wall = time.perf_counter() - start
    told = json.loads((folder / TIMES).read_text()) if (folder / TIMES).exists() else {}
    well = status == 0 and bool(told)
    size = compress(folder) if well else 0
    step = f"{told['mean_ms']:8.2f} ms a step" if well else f"status {status}, see {folder / LOG}"
    parallel.say(f"{run.name:<56} {wall:5.1f} s {size / 1e3:6.0f} kB {step}{parallel.place()}")
    return well


def execute(command: list[str], log: Path, patience_s: float = PATIENCE_S) -> int:
    """Run a command from the root of the repository; 124 where it takes too long."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **parallel.environment()}
    with log.open("wb") as out:
        started = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        return started.wait(patience_s)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # what it started must not disturb the next
        started.wait()


def compress(folder: Path) -> int:
    """Replace a folder by NAME.tar.xz, its traces no longer packed each by itself; its size in bytes."""
    for packed in folder.glob(f"{RAW}/raw/*.json.gz"):
        with gzip.open(packed) as source, packed.with_suffix("").open("wb") as plain:
            shutil.copyfileobj(source, plain, 1 << 20)
        packed.unlink()
    archive, part = folder.with_name(f"{folder.name}.tar.xz"), folder.with_name(f"{folder.name}.part")
    with tarfile.open(part, "w:xz") as tar:
        tar.add(folder, folder.name)
    part.replace(archive)
    shutil.rmtree(folder)
    return archive.stat().st_size


def bundle(folder: Path, target: Path) -> None:
    """One tar of all that was recorded."""
    with tarfile.open(target, "w") as tar:
        for archive in sorted(folder.glob("*.tar.xz")):
            tar.add(archive, archive.name)
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


def gpus(words: str) -> list[str]:
    """GPUs as CUDA_VISIBLE_DEVICES takes them, none of them twice."""
    found = [word.strip() for word in words.split(",")]
    if not all(found) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{words!r} is not a list of different GPUs, such as 0,1")
    return found


def run(suite: Suite, kept: Path, about: str | None, **defaults: int) -> None:
    """The command line, for the programs of `suite`, whose soundings are kept in `kept`."""
    options = arguments(suite, kept, about, **defaults)
    sys.exit(options.command(options))


def arguments(suite: Suite, kept: Path, about: str | None, **defaults: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    on_target = commands.add_parser("record", help="record what is not recorded yet")
    on_target.add_argument("folder", type=Path)
    on_target.add_argument("--only", nargs="+", metavar="GROUP/NAME")
    on_target.add_argument("--group", nargs="+")
    on_target.add_argument("--form", nargs="+", choices=FORMS, default=FORMS)
    on_target.add_argument("--severity", nargs="+", type=int, choices=(1, 2, 3), default=[2])
    on_target.add_argument("--steps", type=int, default=80, help="that the program makes")
    on_target.add_argument("--windows", type=int, default=4, help="steps that each phase records")
    on_target.add_argument("--minutes", type=float, default=1e9, help="start no run after so long")
    on_target.add_argument("--tar", type=Path, help="put everything recorded into this file at the end")
    on_target.add_argument("--gpus", type=gpus, metavar="0,1", help="spread the runs over these")
    on_target.add_argument("--at-once", type=int, default=1, help="runs on each, of which one works")
    on_target.add_argument("--small", action="store_true", help="sizes for a processor, on a processor")
    on_target.set_defaults(command=partial(record, suite=suite), **defaults)
    here = commands.add_parser("finish", help="make soundings of raw records")
    here.set_defaults(command=lambda options: finish(options.tars, options.into))
    here.add_argument("tars", nargs="+", type=Path, metavar="TAR")
    here.add_argument("--into", type=Path, default=kept)
    return parser.parse_args()


if __name__ == "__main__":
    run(programs, KEPT, __doc__)
