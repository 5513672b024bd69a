"""`fathom explain`: what a kind of finding means."""

from __future__ import annotations

import json as json_library
from typing import Annotated

import typer

EXAMPLES = """Examples:

fathom explain --list

fathom explain host-launch-bound"""


def explain(
    kind: Annotated[str | None, typer.Argument(help="A kind of finding.", metavar="ID")] = None,
    every: Annotated[bool, typer.Option("--list", help="Every kind, one a line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Describe a kind of finding: its mechanism, how it shows, what mends it."""
    import msgspec

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
        print(json_library.dumps(msgspec.to_builtins(chosen if every else chosen[0]), indent=1))
    elif every:
        print_kinds(chosen)
    else:
        print_kind(chosen[0])
