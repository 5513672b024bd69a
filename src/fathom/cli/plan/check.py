"""`fathom plan check`: how far a recorded program is from its plan."""

from __future__ import annotations

from typer import Option

from fathom.cli.console import Machine, SoundingPath, examples, print_json

EXAMPLES = examples("fathom plan check train.fathom", "fathom plan check train.fathom --machine h200.json")


def check(
    sounding: SoundingPath,
    machine: Machine = None,
    json: bool = Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Plan the recorded program from the machine's ceilings alone, and compare entry by entry."""
    from fathom.analysis import operators_of
    from fathom.api import Sounding
    from fathom.machine import bounding
    from fathom.planner.training import check_recorded
    from fathom.report import print_checked
    from fathom.sounding import open_store

    store = open_store(sounding)
    recording = Sounding(store, machine)
    examination, bounds = recording.examine(), bounding(store.machine, machine)
    checked = check_recorded(examination, bounds, operators_of(store, store.ranks[0]))
    (print_json if json else print_checked)(checked)
