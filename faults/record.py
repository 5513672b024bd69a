"""Record the suite of faults.

    fathom machine measure                                                 # on the target, once: the ceilings
    python -m faults.record record OUT --minutes 9 --tar faults.tar  # there, until nothing is left
    python -m faults.record finish faults.tar                        # here: into faults/recordings

`record` needs no library but Python's, PyYAML and what the programs import. A run that ended well is not
repeated; `--minutes` starts none after that time, and the tar holds what is there so far: of each group and
severity about the same part. `--missing` leaves out what is kept in the repository.

`--gpus 0,1,2,3` records on four GPUs at once, each with a quarter of the cores, both forms of a program on
the same one. `--at-once 6` lets five more start and end on each while one works: what waits for its turn has
its imports behind it, costs no processor and holds nothing on the GPU, so more than keep the turn taken are
of no use. Where the driver lists processes, runs with counters want `--at-once 1`: a GPU that another process
uses is not sampled.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from faults import parallel
from faults.finish import RAW, TIMES, finish
from faults.labels import FORMS, HERE, Suite, programs
from faults.runs import Run, chosen, unmet

ROOT = HERE.parent
KEPT = HERE / "recordings"
PATIENCE_S = 120  # with a run; as much again for each that it may wait for
LOG = "log.txt"
QUALIFY_S = 320
MEASURE = ("-m", "fathom", "machine", "measure", "--only", "counters")
UNQUALIFIED = (
    "from fathom.gauges.counters import needed; from fathom.machine import known_machine;"
    " raise SystemExit(needed(known_machine()))"
)


def record(options: argparse.Namespace, suite: Suite = programs) -> int:
    """Record what is not recorded yet; 1 where something failed or is left."""
    options.folder.mkdir(parents=True, exist_ok=True)
    until, ends = time.monotonic() + 60 * options.minutes, Counter[str]()

    def attempt(run: Run) -> int:
        end = attempted(run, options, until)
        ends[end] += 1
        return end in ("failed", "left")

    runs = list(chosen(options, suite))
    qualify(runs, options)
    bad = sum(map(attempt, runs)) if not options.gpus else spread(runs, attempt, options)
    if options.tar:
        bundle(options.folder, options.tar)
    print(f"{ends['failed']} failed, {ends['left']} left")
    return int(bool(bad))


def spread(runs: list[Run], attempt: Callable[[Run], int], options: argparse.Namespace) -> int:
    """All runs over the GPUs. Those with counters come first, each by itself: while another process has not
    yet left a GPU, Fathom takes no samples there."""
    return sum(
        parallel.side_by_side(
            [run for run in runs if run.counted == counted],
            lambda run: (run.program.family, run.severity),
            attempt,
            options.gpus,
            1 if counted else options.at_once,
        )
        for counted in (True, False)
    )


def qualify(runs: list[Run], options: argparse.Namespace) -> None:
    """Find out once which counters stream here, where a run needs them and it is not known yet."""
    if not any(
        run.counted and not done(run, options) and not unmet(run.program, options.small) for run in runs
    ):
        return
    log = options.folder / "counters.txt"
    if execute([sys.executable, "-c", UNQUALIFIED], log) == 0:
        return
    parallel.say("finding out which counters stream here, once")
    status = execute([sys.executable, *MEASURE], log, QUALIFY_S)
    if status:
        parallel.say(f"no counters: status {status}, {last_words(log)}")


def done(run: Run, options: argparse.Namespace) -> bool:
    return (options.folder / f"{run.name}.tar.xz").exists()


def attempted(run: Run, options: argparse.Namespace, until: float) -> str:
    """How a run ended: well, failed, left (for another time), out (it cannot run here)."""
    if done(run, options):
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
    why = fault(run, folder, status)
    if why:
        parallel.say(f"{run.name:<56} {wall:5.1f} s {why}, see {folder / LOG}{parallel.place()}")
        return False
    step, size = json.loads((folder / TIMES).read_text())["mean_ms"], compress(folder)
    parallel.say(f"{run.name:<56} {wall:5.1f} s {size / 1e3:6.0f} kB {step:8.2f} ms a step{parallel.place()}")
    return True


def fault(run: Run, folder: Path, status: int) -> str:
    """Why a recording is none; empty where nothing is wrong with it."""
    if status == -signal.SIGALRM:
        return f"it worked for longer than its turn of {parallel.TURN_S} s"
    if status:
        return f"status {status}, {last_words(folder / LOG)}"
    if not (folder / TIMES).exists():
        return "it told no times of its steps"
    if run.counted and not any(file.stat().st_size for file in folder.glob(f"{RAW}/raw/samples-*.bin")):
        return f"no counters in it, {last_words(folder / LOG)}"
    return ""


def last_words(log: Path) -> str:
    """The last line of a log; if Fathom printed more than the records' place, the last of those lines."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [line for line in lines if line.startswith("fathom: ") and "raw records are" not in line]
    return (said or lines or ["nothing was said"])[-1]


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
            os.killpg(started.pid, signal.SIGKILL)  # its children must not disturb the next
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
    result = [word.strip() for word in words.split(",")]
    if not all(result) or len(set(result)) < len(result):
        raise argparse.ArgumentTypeError(f"{words!r} is not a list of different GPUs, such as 0,1")
    return result


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
    on_target.add_argument("--missing", action="store_true", help="only what is not kept here yet")
    on_target.add_argument("--minutes", type=float, default=1e9, help="start no run after so long")
    on_target.add_argument("--tar", type=Path, help="put everything recorded into this file at the end")
    on_target.add_argument("--gpus", type=gpus, metavar="0,1", help="spread the runs over these")
    on_target.add_argument("--at-once", type=int, default=1, help="runs on each, of which one works")
    on_target.add_argument("--small", action="store_true", help="sizes for a processor, on a processor")
    on_target.set_defaults(command=partial(record, suite=suite), kept=kept, **defaults)
    here = commands.add_parser("finish", help="make soundings of raw records")
    here.set_defaults(command=lambda options: finish(options.tars, options.into))
    here.add_argument("tars", nargs="+", type=Path, metavar="TAR")
    here.add_argument("--into", type=Path, default=kept)
    return parser.parse_args()


if __name__ == "__main__":
    run(programs, KEPT, __doc__)
