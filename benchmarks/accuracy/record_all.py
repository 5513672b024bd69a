"""Record every validation program, and make reports of the recordings.

    python -m benchmarks.accuracy.record_all record OUT  # on the target: raw records, one archive each
    python -m benchmarks.accuracy.record_all record OUT --small --only compiled
    python -m benchmarks.accuracy.record_all finish OUT  # here: soundings, reports, planted delays checked

`record` needs no library but Python's and what the programs import. `finish` writes `results/reports/` and
`results/planted.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cost.launcher import ROOT, execute, script, under_fathom
from fathom.analysis.entries import Entry

RESULTS = ROOT / "benchmarks" / "results"
REPORTS = RESULTS / "reports"
TOLERANCE = 0.05  # of a planted delay's length
ENTRIES = {
    "loader": Entry.INPUT,
    "python": Entry.PYTHON,
    "checkpoint": Entry.CHECKPOINT,
    "gc": Entry.GC,
    "item": Entry.SYNCHRONISATION,
}
NEXT_STEP = {"loader", "item"}  # planted before the optimizer's step, where Fathom's step begins
PLANTED, LAUNCH_BOUND, UNPLANTED = "planted-", "planted-launch-bound-", "none"


@dataclass(frozen=True)
class Program:
    """A program, its arguments, and what to tell `fathom run`."""

    name: str
    file: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    ranks: int = 0  # started by torchrun where it has ranks
    takes_small: bool = True
    truth: bool = False

    def command(self, folder: Path, small: bool) -> list[str]:
        start = [sys.executable, str(script(self.file))]
        if self.ranks:
            torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
            start = [sys.executable, *torchrun, str(script(self.file))]
        truth = ["--truth", str(folder / "truth.json")] if self.truth else []
        sized = ["--small"] if small and self.takes_small else []
        return [*start, *self.arguments, *sized, *truth, "--times", str(folder / "times.json")]


def planted(prefix: str, name: str, *delays: str) -> Program:
    arguments = tuple(word for delay in delays for word in ("--plant", delay))
    arguments += ("--launch-bound",) if prefix == LAUNCH_BOUND else ()
    return Program(prefix + name, "planted", arguments, ("--steps", "20"), truth=True)


PROGRAMS = (
    Program("train_gpt", "train_gpt", takes_small=False),
    Program("train_gpt-compiled", "train_gpt", ("--compile",), takes_small=False),
    Program("hf_trainer", "hf_trainer"),
    Program("lightning", "lightning_run"),
    Program("timm_jpeg", "timm_jpeg"),
    Program("compiled", "compiled"),
    Program("cuda_graph", "cuda_graph"),
    Program("cuda_graph-callables", "cuda_graph", ("--mode", "callables")),
    Program("cuda_graph-reduce-overhead", "cuda_graph", ("--mode", "reduce-overhead")),
    Program("generate", "generate"),
    Program("two_streams", "two_streams"),
    Program("launch_bound", "launch_bound"),
    Program("many_events", "many_events"),
    Program("ddp", "ddp", ("--device", "cpu", "--small"), ranks=2),
    *(
        planted(prefix, name, *delays)
        for prefix in (PLANTED, LAUNCH_BOUND)
        for name, *delays in (
            (UNPLANTED,),
            ("loader", "loader:30ms"),
            ("python", "python:30ms"),
            ("checkpoint", "checkpoint:30ms"),
            ("gc", "gc:30ms"),
            ("item", "item"),
        )
    ),
)


def record(options: argparse.Namespace) -> None:
    """Record the programs, and leave OUT/NAME.tar.gz of each."""
    options.folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        if options.only and program.name not in options.only:
            continue
        folder = options.folder / program.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        command = program.command(folder, options.small)
        command = under_fathom(
            command, folder / f"{program.name}.fathom", ["--depth", options.depth, *program.options]
        )
        outcome = execute(command, folder / "log.txt")
        archive = pack(folder)
        size = archive.stat().st_size / 1e6
        print(f"{program.name}: status {outcome.status}, {outcome.wall_s:.0f} s, {size:.1f} MB", flush=True)
        if outcome.status:
            print("\n".join((folder / "log.txt").read_text(errors="replace").splitlines()[-15:]))
        shutil.rmtree(folder)


def pack(folder: Path) -> Path:
    archive = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        tar.add(folder, folder.name)
    return archive


@dataclass
class Finished:
    """A recording's examination, and the truth that its program told."""

    examination: dict[str, Any]
    truth: dict[str, Any] = field(default_factory=dict)

    def entry_ms(self, name: str) -> float:
        """Milliseconds per step of the entry `name` in the first device's ledger."""
        return sum(e["ms"] for e in self.examination["devices"][0]["ledger"] if e["entry"] == name)

    def lengths(self, plant: dict[str, Any]) -> list[float]:
        """How long a planted delay was in each of the steps that the ledger is the mean of."""
        late = plant["kind"] in NEXT_STEP
        used = [w["step"] for w in self.examination["devices"][0]["windows"] if w["used"]]
        return [plant["lengths_ms"][step + late] for step in used]


def finish(options: argparse.Namespace) -> None:
    """Import every archive of the folder, write its report, and check the planted delays."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    finished = {}
    for archive in sorted(options.folder.glob("*.tar.gz")):
        name = archive.name.removesuffix(".tar.gz")
        if options.only and name not in options.only:
            continue
        folder = unpack(archive)
        result = report(name, folder)
        if result:
            truth = folder / "truth.json"
            finished[name] = Finished(result, json.loads(truth.read_text()) if truth.exists() else {})
    checks = [check for name in finished for check in checked(name, finished)]
    if checks:
        (RESULTS / "planted.json").write_text(json.dumps(checks, indent=1) + "\n")
    for check in checks:
        print(f"{check['recording']} {check['kind']}: {'ok' if check['ok'] else 'WRONG'} {check}")


def unpack(archive: Path) -> Path:
    folder = archive.with_name(archive.name.removesuffix(".tar.gz"))
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(archive.parent, filter="data")
    return folder


def report(name: str, folder: Path) -> dict[str, Any] | None:
    """Make a sounding of the raw records and write its report; None, with a word, where that fails."""
    sounding = folder / f"{name}.fathom"
    texts = []
    for words in (["import", str(sounding)], ["report", str(sounding)], ["report", "--json", str(sounding)]):
        done = subprocess.run([sys.executable, "-m", "fathom", *words], capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: fathom {words[0]} failed: {done.stderr.strip()}")
            return None
        texts.append(done.stdout)
    (REPORTS / f"{name}.txt").write_text("\n".join(line.rstrip() for line in texts[1].splitlines()) + "\n")
    (REPORTS / f"{name}.json").write_text(texts[2])
    print(f"{name}: {REPORTS / name}.txt")
    return json.loads(texts[2])


def checked(name: str, finished: dict[str, Finished]) -> list[dict[str, Any]]:
    """Each planted delay against what the ledger holds more than that of the same program without delays."""
    plain = (LAUNCH_BOUND if name.startswith(LAUNCH_BOUND) else PLANTED) + UNPLANTED
    if plain not in finished or not finished[name].truth.get("plants"):
        return []
    checks = []
    for plant in finished[name].truth["plants"]:
        entry = ENTRIES[plant["kind"]]
        length = statistics.mean(finished[name].lengths(plant))
        more = finished[name].entry_ms(entry) - finished[plain].entry_ms(entry)
        expected = length if plant["costs"] else 0.0
        error = (more - expected) / length
        checks.append(
            {
                "recording": name,
                "kind": plant["kind"],
                "entry": entry,
                "length_ms": length,
                "expected_ms": expected,
                "found_ms": more,
                "error": error,
                "ok": abs(error) <= TOLERANCE,
            }
        )
    return checks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for command in (record, finish):
        sub = commands.add_parser(command.__name__, help=(command.__doc__ or "").splitlines()[0])
        sub.set_defaults(command=command)
        sub.add_argument("folder", type=Path)
        sub.add_argument("--only", nargs="+", metavar="NAME", help=", ".join(p.name for p in PROGRAMS))
        if command is record:
            sub.add_argument("--small", action="store_true", help="sizes for a CPU")
            sub.add_argument("--depth", default="auto", help="as in `fathom run`")
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
