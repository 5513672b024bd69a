"""The variables that Fathom gave this process, which are no longer in the program's environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from fathom.pristine import os

TEARDOWN = "TEARDOWN_CUPTI"  # says whether Kineto releases CUPTI after a burst
RAW, SCHEDULE = "FATHOM_RAW", "FATHOM_SCHEDULE"  # the folder of raw records; the ranks' common schedule
_ATTRIBUTE = "_fathom"  # of `sys`: set by `inject/sitecustomize.py`, which runs before any other code


def variables() -> Mapping[str, str]:
    """Return Fathom's variables; those of the environment if this process was not injected."""
    taken: Mapping[str, str] | None = getattr(sys, _ATTRIBUTE, None)
    return os.environ if taken is None else taken


def value_of(name: str) -> str | None:
    """Return a variable that Fathom set or the program has."""
    return variables().get(name) or os.environ.get(name)


def forget() -> None:
    """Do not pass the recording on to new processes any more."""
    taken = getattr(sys, _ATTRIBUTE, None)
    if taken is not None:
        taken.clear()
