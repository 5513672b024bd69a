"""`fathom findings`: what holds a step back, what mending it saves, and how."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fathom.cli.options import Machine

EXAMPLES = """Examples:

fathom findings train.fathom

fathom findings train.fathom --json"""


def findings(
    sounding: Annotated[Path, typer.Argument(help="A sounding, packed or not.")],
    json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
    machine: Machine = None,
) -> None:
    """Name what holds a step back, what mending it would save, and how to mend it."""
    import msgspec

    from fathom.api import open
    from fathom.report.findings import print_findings, unseen_of

    examination = open(sounding, machine=machine).examine()
    found = examination.findings
    if json:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    else:
        print_findings(found, unseen_of(examination.abstained))
