"""`fathom explain`: the meaning of a kind of finding."""

from __future__ import annotations

from typer import Argument, Option

from fathom.cli.console import examples, print_json
from fathom.errors import BadInputError

EXAMPLES = examples("fathom explain --list", "fathom explain host-launch-bound")


def explain_(
    kind: str | None = Argument(None, help="A kind of finding.", metavar="ID"),
    every: bool = Option(False, "--list", help="List all kinds, one per line."),
    json: bool = Option(False, "--json", help="Print it as JSON."),
) -> None:
    """Explain a kind of finding: its mechanism, signs and remedy."""
    from fathom.diagnosis import described, kind_called, kinds
    from fathom.report import print_kind, print_kinds

    if (kind is None) == (not every):
        raise BadInputError("Name one kind of finding, or give --list.")
    chosen = list(kinds().values()) if kind is None else [kind_called(kind, "--list shows all")]
    if json:
        rows = [described(kind) for kind in chosen]
        print_json(rows if every else rows[0])
    elif every:
        print_kinds(chosen)
    else:
        print_kind(chosen[0])
