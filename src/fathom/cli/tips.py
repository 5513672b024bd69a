"""`fathom tips`: the performance checklist, scored on this machine or on a recorded program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from fathom.cli.console import Price, examples, write_json
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.tips import Scores

EXAMPLES = examples(
    "fathom tips",
    "fathom tips train.fathom --price 3.50/h",
    "fathom tips train.fathom --area data --status to-be-read",
    "fathom tips --manifest pod.yaml --area kubernetes",
)


def tips(
    sounding: Path | None = Argument(None, help="A sounding, packed or not. [default: this machine alone]"),
    area: list[str] | None = Option(
        None, metavar="AREA", help="List the tips of this area, like data or compute."
    ),
    status: list[str] | None = Option(
        None,
        metavar="STATUS",
        help="List the tips with this status: broken, unknown, to-be-read, kept or not-applicable.",
    ),
    manifest: list[Path] | None = Option(
        None, metavar="FILE|-", help="Also judge the pods of this Kubernetes manifest."
    ),
    json: bool = Option(False, "--json", help="Print the scores as JSON."),
    price: Price = None,
) -> None:
    """Score the performance checklist: tips that are kept, broken (costliest first), unknown, or to be read.

    A tip is broken if a check of the machine fails or a recording shows the loss, and kept only if that was
    checked. Without a sounding, findings are unknown.
    """
    from fathom.api import open
    from fathom.report import print_tips
    from fathom.tips import STATUSES, Scores, chosen

    chosen(area or [])
    for name in status or []:
        if name not in STATUSES:
            raise BadInputError(f"There is no status {name[:40]!r}; give one of {', '.join(STATUSES)}.")
    if sounding is not None and manifest:
        raise BadInputError("Give a sounding or a manifest, but not both.")
    areas = area or []
    scores = _of_machine(manifest, areas) if sounding is None else open(sounding).tips(price, areas)
    wanted = [entry for entry in scores.tips if not status or entry.status in status]
    shown = Scores(scores.counts, wanted)
    if json:
        write_json(shown)
    else:
        print_tips(shown, listed=bool(area or status))


def _of_machine(manifest: list[Path] | None, areas: list[str]) -> Scores:
    from fathom.machine import inventory
    from fathom.machine.checks import examine, this_host
    from fathom.tips import chosen, of_machine, score

    results = examine(this_host(), manifests=manifest or ())
    return score(of_machine(inventory(), results, bool(manifest)), chosen(areas))
