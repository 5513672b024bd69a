"""`fathom machine compare`: find the results that carry over from one machine to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from fathom.cli.console import examples, write_json
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.machine.compare import MachineComparison, ResultKind
    from fathom.machine.model import Machine

SETTINGS = ".toml"
EXAMPLES = examples(
    "fathom machine compare train.fathom here.json",
    "fathom machine compare train.tune/settings.toml   (settings, with this machine)",
    "fathom machine compare h100.fathom.zip   (with this machine)",
)


def compare(
    a: Path = Argument(
        metavar="A", help="Origin of the result: a machine file, a sounding, or settings of `fathom tune`."
    ),
    b: Path | None = Argument(None, metavar="B", help="Target machine, likewise. [default: this machine]"),
    json: bool = Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare two machines: which results of A also hold on B, and by how much their ceilings differ."""
    from fathom.machine.compare import compare as compare_machines
    from fathom.report import print_comparison

    machines = _machine(a), _machine(b)
    comparison = compare_machines(*machines, *_names(a, b), itself=b is not None and a.samefile(b))
    if a.suffix == SETTINGS:
        comparison.settings = _settings(a, comparison)
    (write_json if json else print_comparison)(comparison)


def _names(a: Path, b: Path | None) -> tuple[str, str]:
    """Return the file names of both machines, or their paths if the names are equal."""
    if b is None:
        return a.name, "this machine"
    return (str(a), str(b)) if a.name == b.name else (a.name, b.name)


def _machine(path: Path | None) -> Machine:
    from zipfile import is_zipfile

    from fathom.machine import described, read_machine

    if path is None:
        return described()
    if path.suffix == SETTINGS:
        return _of_settings(path)
    packed = path.is_file() and is_zipfile(path)
    return _of_sounding(path) if packed or path.is_dir() else read_machine(path)


def _settings(path: Path, comparison: MachineComparison) -> list[ResultKind]:
    from fathom.machine.compare import settings_carried
    from fathom.recorder import read_settings

    applied = read_settings(path)
    return settings_carried(comparison.kinds, applied.knobs, applied.carries)


def _of_settings(path: Path) -> Machine:
    """Return the machine on which the settings of a file were proven."""
    from fathom.recorder import read_settings

    machine = read_settings(path).inventory()
    if not machine:
        raise BadInputError(f"{path} does not name its machine; give a file that `fathom tune` wrote.")
    return machine


def _of_sounding(path: Path) -> Machine:
    """Return the machine of a sounding, with the versions of the program's libraries."""
    from fathom.sounding import open_store

    store = open_store(path)
    machine = store.machine
    if not isinstance(machine, dict) or not machine:
        raise BadInputError(f"{path} was imported without its machine; give a machine file.")
    versions = machine.get("versions")
    known = versions if isinstance(versions, dict) else {}
    return {**machine, "versions": {**known, **store.manifest.versions}}
