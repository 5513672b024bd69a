"""The `fathom` command: its subcommands, and its error messages."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from fathom.cli import (
    bisect,
    compare,
    dive,
    doctor,
    explain_,
    export,
    findings,
    gate,
    goodput,
    import_,
    kernel,
    lab,
    load,
    machine,
    mcp_,
    merge,
    open_,
    pack,
    plan,
    prove,
    query,
    report,
    run,
    tips,
    tune,
    watch,
    what_if,
)
from fathom.cli.console import explain, group, say
from fathom.cli.quick import leave, only_read, quicken, stay
from fathom.errors import FathomError
from fathom.version import VERSION

DEBUG = "FATHOM_DEBUG"
BAD_INPUT, INTERRUPTED = 2, 130


class _Group(TyperGroup):
    """Print expected errors on one line, and exit with a status."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        quicken(self, ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: Any) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        only_read(name)
        quicken(command, ctx)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _plain(error.message)
            raise
        except FathomError as error:
            if os.environ.get(DEBUG):
                raise
            say(str(error))
            raise SystemExit(BAD_INPUT) from None
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BrokenPipeError:
            _drop_output()
            raise SystemExit(1) from None


def _plain(message: str) -> str:
    """Return the message about a value without the words that pydantic, which checks it, puts before it."""
    return message.removeprefix("Value error, ").replace("Input should be", "it must be", 1)


app = group(
    cls=_Group,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Where your accelerator's time goes, all the way down.",
    epilog="Begin with: fathom run -- python train.py\n\n"
    "Exit status: 2 if an input cannot be used, 1 for other failures; `run` has the program's.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fathom {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


app.command(
    "run",
    cls=run.RunCommand,
    options_metavar="[OPTIONS] --",
    short_help="Record a program, and report where its step time goes.",
    context_settings={"allow_interspersed_args": False},
    help=run.HELP,
    epilog=run.EXAMPLES,
)(run.run)
app.command(
    "bisect",
    short_help="Find the commit that slowed a step down.",
    epilog=bisect.EXAMPLES,
    context_settings={"allow_interspersed_args": False},
)(bisect.bisect)
app.command(
    "compare",
    cls=compare.SidesCommand,
    short_help="Compare recordings: what changed, and why.",
    epilog=compare.EXAMPLES,
)(compare.compare)
app.command(
    "gate", cls=compare.SidesCommand, short_help="Check recordings against budgets.", epilog=gate.EXAMPLES
)(gate.gate)
for _function, _examples, _about in (
    (watch.watch, watch.EXAMPLES, "Follow a program while it is recorded."),
    (report.report, report.EXAMPLES, "Show where the time of a step goes."),
    (open_.open_, open_.EXAMPLES, "Show the report as a page in the browser."),
    (findings.findings, findings.EXAMPLES, "List the causes of lost time, with gains and remedies."),
    (explain_.explain, explain_.EXAMPLES, "Explain a kind of finding."),
    (tips.tips, tips.EXAMPLES, "Check performance tips, here or on a recording."),
    (kernel.kernel, kernel.EXAMPLES, "Show what limits a kernel family, and why."),
    (what_if.what_if, what_if.EXAMPLES, "Predict a step with changed durations."),
    (dive.dive, dive.EXAMPLES, "Profile one kernel with Nsight Compute."),
    (prove.prove, prove.EXAMPLES, "Prove that a candidate is faster and computes the same."),
    (import_.import_, import_.EXAMPLES, "Convert traces or ncu results into a sounding."),
    (load.load, load.EXAMPLES, "Load a server, and judge the load test."),
    (goodput.goodput, goodput.EXAMPLES, "Report the productive share of a job's wall time."),
    (merge.merge, merge.EXAMPLES, "Join the soundings of a job's nodes."),
    (query.query, query.EXAMPLES, "Run SQL over the tables of a sounding."),
    (export.export, export.EXAMPLES, "Write a sounding in the format of another tool."),
    (pack.pack, pack.EXAMPLES, "Pack a sounding into one file."),
    (doctor.doctor, doctor.EXAMPLES, "Check which recording depths work here."),
    (mcp_.mcp_, mcp_.EXAMPLES, "Serve soundings to coding agents."),
):
    _name = _function.__name__.rstrip("_").replace("_", "-")
    app.command(_name, short_help=_about, epilog=_examples)(_function)
app.add_typer(lab.app, name="lab", short_help="Prove optimisation techniques on this machine.")
app.add_typer(tune.app, name="tune", short_help="Search settings that are proven faster.")
app.add_typer(plan.app, name="plan", short_help="Plan training and serving on machines that you lack.")
app.add_typer(machine.app, name="machine", short_help="Show, measure, check and compare machines.")


def start() -> None:
    """Run the command line as this process's program, and end the process."""
    try:
        main()
    except SystemExit as end:
        leave(end)


def main() -> None:
    """Run the command line on this process's arguments. Raises SystemExit with its status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    _keep(name)
    stay(name)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # those of libraries, about damaged recordings, help no user
    try:
        app()
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        say(explain(error))
        sys.exit(1)


def _keep(name: str) -> None:
    """Register only the requested command, because creating all of them takes longer than running some."""
    mine = [command for command in app.registered_commands if command.name == name]
    if mine:
        app.registered_commands, app.registered_groups = mine, []


def _drop_output() -> None:
    # Otherwise Python reports the error again when it flushes standard output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
