"""`fathom doctor`: the recording depths that work here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer import Option

from fathom.cli.console import print_json

if TYPE_CHECKING:
    from fathom.recorder import Diagnosis, DoctorCheck

EXAMPLES = "Example: fathom doctor --python ~/venv/bin/python"


def doctor(
    python: str | None = Option(None, help="Python interpreter of the program. [default: python on PATH]"),
    json: bool = Option(False, "--json", help="Print everything as JSON."),
) -> None:
    """Check which recording depths work here, and explain why others do not."""
    from fathom.recorder import examine_host

    diagnosis = examine_host(python)
    if json:
        print_json(diagnosis.as_dict())
    else:
        _print(diagnosis)


def _print(diagnosis: Diagnosis) -> None:
    for depth, why in diagnosis.depths.items():
        print(f"{depth:10} {'works' if not why else 'does not work: ' + why}")
    print()
    for check in diagnosis.checks:
        print(_line(check))


def _line(check: DoctorCheck) -> str:
    sign = {True: "ok", False: "!!", None: "--"}[check.ok]
    fix = f"\n{'':24}fix: {check.fix}" if check.ok is False else ""
    return f"{sign} {check.what:20} {check.found}{fix}"
