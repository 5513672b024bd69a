"""`fathom machine`: inventory, ceilings, host checks, and comparison with another machine."""

from __future__ import annotations

from fathom.cli.console import group
from fathom.cli.machine import check, compare, measure, show

app = group()
app.callback(invoke_without_command=True, help=show.HELP, epilog=show.EXAMPLES)(show.show)
app.command("measure", epilog=measure.EXAMPLES)(measure.measure)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)

__all__ = ["app"]
