"""`fathom machine`: what this machine is, what it can do, how it is set up, and what carries over to it."""

from __future__ import annotations

from importlib import import_module

import typer

from fathom.cli.machine import compare, show

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
app.callback(invoke_without_command=True, help=show.HELP, epilog=show.EXAMPLES)(show.show)


def _add(name: str) -> None:
    """One subcommand from the file of its name, where that is there."""
    place = f"{__name__}.{name}"
    try:
        module = import_module(place)
    except ModuleNotFoundError as error:
        if error.name != place:
            raise
        return
    app.command(name, epilog=getattr(module, "EXAMPLES", None))(getattr(module, name))


_add("measure")
_add("check")
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)

__all__ = ["app"]
