"""`fathom explain`: what a kind of finding means."""

from __future__ import annotations

from typing import Annotated

import typer

from fathom.cli.console import print_json

EXAMPLES = """Examples:

fathom explain --list

fathom explain host-launch-bound"""


def explain(
    kind: Annotated[str | None, typer.Argument(help="A kind of finding.", metavar="ID")] = None,
    every: Annotated[bool, typer.Option("--list", help="Every kind, one a line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Describe a kind of finding: its mechanism, how it shows, what mends it."""
    from fathom.diagnosis.kinds import kinds, resembling
    from fathom.errors import BadInputError
    from fathom.report import print_kind, print_kinds

    if (kind is None) == (not every):
        raise BadInputError("Name one kind of finding, or give --list.")
    if kind is not None and kind not in kinds():
        near = ", ".join(resembling(kind)[:5]) or "see --list"
        raise BadInputError(f"There is no kind of finding {kind[:60]!r}; near it: {near}.")
    chosen = list(kinds().values()) if kind is None else [kinds()[kind]]
    if json:
        print_json(chosen if every else chosen[0])
    elif every:
        print_kinds(chosen)
    else:
        print_kind(chosen[0])
