"""The `fathom` command: its subcommands, and its error messages."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from fathom.cli.console import explain, group, say
from fathom.cli.quick import leave, only_read, quicken, roomy, stay
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


# The module of each command, in the order of `fathom --help`, and the command's purpose.
COMMANDS = {
    "run": "Record a program, and report where its step time goes.",
    "bisect": "Find the commit that slowed a step down.",
    "compare": "Compare recordings: what changed, and why.",
    "gate": "Check recordings against budgets.",
    "watch": "Follow a program while it is recorded.",
    "report": "Show where the time of a step goes.",
    "open_": "Show the report as a page in the browser.",
    "findings": "List the causes of lost time, with gains and remedies.",
    "explain_": "Explain a kind of finding.",
    "tips": "Check performance tips, here or on a recording.",
    "kernel": "Show what limits a kernel family, and why.",
    "what_if": "Predict a step with changed durations.",
    "dive": "Profile one kernel with Nsight Compute.",
    "prove": "Prove that a candidate is faster and computes the same.",
    "import_": "Convert traces or ncu results into a sounding.",
    "load": "Load a server, and judge the load test.",
    "goodput": "Report the productive share of a job's wall time.",
    "merge": "Join the soundings of a job's nodes.",
    "query": "Run SQL over the tables of a sounding.",
    "export": "Write a sounding in the format of another tool.",
    "pack": "Pack a sounding into one file.",
    "doctor": "Check which recording depths work here.",
    "mcp_": "Serve soundings to coding agents.",
}
GROUPS = {
    "lab": "Prove optimisation techniques on this machine.",
    "tune": "Search settings that are proven faster.",
    "plan": "Plan training and serving on machines that you lack.",
    "machine": "Show, measure, check and compare machines.",
}


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fathom {VERSION}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def command_line(wanted: str = "") -> typer.Typer:
    """Return the command line with the command `wanted`, or with all if there is none of that name.

    Importing all of them takes longer than running some.
    """
    app = group(
        cls=_Group,
        add_completion=True,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Where your accelerator's time goes, all the way down.",
        epilog="Begin with: fathom run -- python train.py\n\n"
        "Exit status: 2 if an input cannot be used, 1 for other failures; `run` has the program's.",
    )
    app.callback()(_options)
    about = COMMANDS | GROUPS
    for module in [module for module in about if _name(module) == wanted] or about:
        loaded = import_module(f"fathom.cli.{module}")
        if module in GROUPS:
            app.add_typer(loaded.app, name=module, short_help=about[module])
            continue
        options = {"short_help": about[module], "epilog": loaded.EXAMPLES, **getattr(loaded, "SETTINGS", {})}
        app.command(_name(module), **options)(getattr(loaded, module))
    return app


def _name(module: str) -> str:
    return module.rstrip("_").replace("_", "-")


def __getattr__(name: str) -> typer.Typer:
    """Return `app`, the command line with all commands, on its first use."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = command_line()
    return globals()[name]


def start() -> None:
    """Run the command line as this process's program, and end the process."""
    try:
        main()
    except SystemExit as end:
        leave(end)


@roomy
def main() -> None:
    """Run the command line on this process's arguments. Raises SystemExit with its status."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    stay(name)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # those of libraries, about damaged recordings, help no user
    try:
        command_line(name)()
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        say(explain(error))
        sys.exit(1)


def _drop_output() -> None:
    # Otherwise Python reports the error again when it flushes standard output at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
