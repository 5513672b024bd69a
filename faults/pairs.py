"""Every pair there is: techniques of the lab, crafted kernels, programs of the suite of faults.

    python -m faults.pairs list [NAME …]              # with the findings that name them
    python -m faults.pairs prove NAME [--small]       # the referee's verdict; faults as whole commands
    python -m faults.pairs check NAME PLAIN [TUNED]   # soundings, or CSV of ncu, which may hold both forms

NAME is lab/TECHNIQUE, crafted/KERNEL, or faults/GROUP/PROGRAM; all from the root of the repository. `check`
ends with status 1 unless every expected finding is on the plain form and not on the tuned one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from faults.labels import programs

if TYPE_CHECKING:
    from fathom.diagnosis import PairFinding
    from fathom.referee import Pair
    from fathom.sounding import Store

FORMS_OF_KERNELS = ("flawed", "mended")


def pairs(severity: int = 2, *more: str, metrics: Path | None = None) -> dict[str, Pair]:
    """All of them by name; the rest is for the programs of the suite, see `Program.pair`."""
    from fathom.lab import techniques
    from faults.kernels.pairs import pairs as crafted

    faulty = [program for program in programs() if program.fault.kind]
    return {
        **{f"lab/{name}": technique.pair for name, technique in techniques().items()},
        **{f"crafted/{name}": pair for name, pair in crafted().items()},
        **{f"faults/{program.id}": program.pair(severity, *more, metrics=metrics) for program in faulty},
    }


def check(name: str, pair: Pair, plain: Store, tuned: Store) -> list[PairFinding]:
    """Whether each expected finding is on the plain form and not on the tuned one."""
    from fathom.diagnosis import form_findings, pair_findings

    crafted = name.startswith("crafted/")
    flawed, mended = (f"{pair.name}_{form}" if crafted else "" for form in FORMS_OF_KERNELS)
    return pair_findings(pair.findings, form_findings(plain, flawed), form_findings(tuned, mended))


def opened(path: Path, scratch: Path) -> Store:
    """A sounding, or one made of what ncu wrote."""
    from fathom.sounding import import_ncu, open_store

    if path.is_dir() or path.suffix == ".zip":
        return open_store(path)
    return import_ncu([path], Path(tempfile.mkdtemp(dir=scratch)) / f"{path.stem}.fathom")


def named(name: str, result: dict[str, Pair]) -> Pair:
    """The pair of this name; ends the program where there is none."""
    if name not in result:
        sys.exit(f"There is no pair {name}; see python -m faults.pairs list.")
    return result[name]


def list_(options: argparse.Namespace) -> int:
    for name, pair in pairs().items():
        if not options.names or any(name.startswith(wanted) for wanted in options.names):
            print(f"{name:<44} {', '.join(pair.findings)}")
    return 0


def prove(options: argparse.Namespace) -> int:
    from fathom.referee import Settings, prove_pair
    from fathom.report import print_verdict

    more = ("--steps", str(options.steps), *(("--device", "cpu", "--small") if options.small else ()))
    with tempfile.TemporaryDirectory() as scratch:
        result = pairs(options.severity, *more, metrics=Path(scratch) / "metrics.json")
        verdict = prove_pair(named(options.name, result), Settings(budget_s=options.budget))
    print_verdict(verdict)
    return int(verdict.verdict != "faster")


def checked(options: argparse.Namespace) -> int:
    from fathom.report import print_pair_findings

    pair = named(options.name, pairs())
    with tempfile.TemporaryDirectory() as scratch:
        plain = opened(options.plain, Path(scratch))
        tuned = opened(options.tuned, Path(scratch)) if options.tuned else plain
        result = check(options.name, pair, plain, tuned)
    print_pair_findings(result)
    return int(not all(item.names for item in result))


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list")
    listing.set_defaults(command=list_)
    listing.add_argument("names", nargs="*")
    proving = commands.add_parser("prove")
    proving.set_defaults(command=prove)
    proving.add_argument("name")
    proving.add_argument("--severity", type=int, choices=(1, 2, 3), default=2)
    proving.add_argument("--steps", type=int, default=400, help="of a program, whose start counts too")
    proving.add_argument("--small", action="store_true", help="a program on a processor")
    proving.add_argument("--budget", type=float, default=120.0, help="seconds of timing at most")
    checking = commands.add_parser("check")
    checking.set_defaults(command=checked)
    checking.add_argument("name")
    checking.add_argument("plain", type=Path)
    checking.add_argument("tuned", type=Path, nargs="?")
    return parser.parse_args(words)


if __name__ == "__main__":
    chosen = arguments()
    sys.exit(chosen.command(chosen))
