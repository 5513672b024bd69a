"""`fathom tips`: the performance checklist, scored on this machine or on a recorded program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fathom.cli.console import write_json
from fathom.cli.options import Price

if TYPE_CHECKING:
    from fathom.tips import Scores

EXAMPLES = """Examples:

fathom tips

fathom tips train.fathom --price 3.50/h

fathom tips train.fathom --area data --status to-be-read

fathom tips --manifest pod.yaml --area kubernetes"""


def tips(
    sounding: Annotated[
        Path | None, typer.Argument(help="A sounding, packed or not. [default: this machine alone]")
    ] = None,
    area: Annotated[
        list[str] | None,
        typer.Option(metavar="AREA", help="List the tips of this area, like data or compute."),
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATUS",
            help="List the tips with this status: broken, unknown, to-be-read, kept or not-applicable.",
        ),
    ] = None,
    manifest: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE|-", help="Also judge the pods of this Kubernetes manifest."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    price: Price = None,
) -> None:
    """Score the performance checklist: tips that are kept, broken (costliest first), unknown, or to be read.

    A tip is broken if a check of the machine fails or a recording shows the loss, and kept only if that was
    checked. Without a sounding, findings are unknown.
    """
    from fathom.errors import BadInputError
    from fathom.tips import STATUSES, Scores, chosen

    chosen(area or [])
    for name in status or []:
        if name not in STATUSES:
            raise BadInputError(f"There is no status {name[:40]!r}; give one of {', '.join(STATUSES)}.")
    if sounding is not None and manifest:
        raise BadInputError("Give a sounding or a manifest, but not both.")
    scores = _of_machine(manifest, area or []) if sounding is None else _of(sounding, price, area or [])
    wanted = [entry for entry in scores.tips if not status or entry.status in status]
    _print(Scores(scores.counts, wanted), json=json, listed=bool(area or status))


def _of(sounding: Path, price: str | None, areas: list[str]) -> Scores:
    from fathom.api import open

    return open(sounding).tips(price=price, areas=areas)


def _of_machine(manifest: list[Path] | None, areas: list[str]) -> Scores:
    from fathom.machine import inventory
    from fathom.machine.checks import examine, this_host
    from fathom.tips import chosen, of_machine, score

    results = examine(this_host(), manifests=manifest or ())
    return score(of_machine(inventory(), results, bool(manifest)), chosen(areas))


def _print(scores: Scores, *, json: bool, listed: bool) -> None:
    from fathom.report import print_tips

    if json:
        write_json(scores)
    else:
        print_tips(scores, listed=listed)
