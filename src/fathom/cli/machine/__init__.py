"""`fathom machine`: inventory, ceilings, host checks, and comparison with another machine."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Option

from fathom.cli.console import examples, group, print_json
from fathom.cli.machine import check, compare, measure

HELP = "Show this machine's inventory and ceilings, check its setup, and compare it with another."
EXAMPLES = examples("fathom machine", "fathom machine --json > here.json")
app = group()


@app.callback(invoke_without_command=True, help=HELP, epilog=EXAMPLES)
def show(
    context: typer.Context,
    json: bool = Option(False, "--json", help="Print everything as one JSON object."),
    data: list[Path] | None = Option(
        None,
        exists=True,
        file_okay=False,
        metavar="FOLDER",
        help="Also show the file system of this folder (repeatable).",
    ),
) -> None:
    """Show the inventory of this machine, and its measured ceilings."""
    if context.invoked_subcommand:
        return
    from fathom.machine import described, from_machine, missing_from, with_datasheet
    from fathom.report import print_machine

    machine = described([folder.resolve() for folder in data or []])
    if json:
        print_json(with_datasheet(machine))
    else:
        name = "this machine"
        print_machine(machine, from_machine(machine, name), missing_from(machine, name))


app.command("measure", short_help="Measure this machine's ceilings.", epilog=measure.EXAMPLES)(
    measure.measure
)
app.command("check", short_help="Check the settings of this host.", epilog=check.EXAMPLES)(check.check)
app.command("compare", short_help="Compare two machines.", epilog=compare.EXAMPLES)(compare.compare)
