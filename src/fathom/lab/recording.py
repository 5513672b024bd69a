"""Record soundings of both forms of a technique."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fathom.errors import FathomError
from fathom.lab.looping import FORMS
from fathom.lab.technique import Technique
from fathom.recorder import Plan, finish, record

if TYPE_CHECKING:
    from fathom.sounding import Store

PLAN = Plan(step_on="mark", stop_after="recorded")


class NotRecordedError(FathomError):
    """A form could not be recorded; the message says why and what to do."""


def record_forms(
    technique: Technique,
    folder: Path,
    *,
    seconds: float = 60.0,
    plan: Plan = PLAN,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Store, Store]:
    """Record FOLDER/NAME.plain.fathom and FOLDER/NAME.tuned.fathom; each runs for at most `seconds`.

    Raises NotRecordedError, CannotLaunchError, and BadInputError if the folder cannot be created.
    """
    if technique.needs.ranks:
        raise NotRecordedError(f"{technique.name} runs on several ranks, which `fathom lab` does not record.")
    folder.mkdir(parents=True, exist_ok=True)
    plain, tuned = (_recorded(technique, form, folder, seconds, plan, say) for form in FORMS)
    return plain, tuned


def _recorded(
    technique: Technique, form: str, folder: Path, seconds: float, plan: Plan, say: Callable[[str], None]
) -> Store:
    inputs, called = (f"{technique.path}:{technique.roles[role]}" for role in ("inputs", form))
    command = [sys.executable, "-m", "fathom.lab.looping", inputs, called]
    say(f"{technique.name}: recording the {form} form")
    output = folder / f"{technique.name}.{form}.fathom"
    recording = record([*command, "--seconds", f"{seconds:g}"], plan, output, replace=True, say=say)
    store = finish(recording.folder, say=say)
    ended = recording.ending.ended
    if ended == "interrupted":
        raise KeyboardInterrupt
    if ended not in ("finished", "stopped"):
        raise NotRecordedError(
            f"The {form} form of {technique.name} failed while it was recorded; "
            f"`fathom lab run {technique.name} --force` shows why."
        )
    if store is None:
        raise NotRecordedError(f"{output} is not a sounding yet; finish it with `fathom import {output}`.")
    return store
