"""Candidate counters: the chip's own sets, `wanted.yaml`, and bare names if neither has any."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from fathom.data import load

table = cache(partial(load, __package__, "wanted"))  # returns the content of `wanted.yaml`


def rolled(name: str) -> str:
    """Return the name with the default rollup if it lacks one."""
    return name if "." in name.rpartition("__")[2] else name + table()["rollup"]


def counter(name: str) -> str:
    """Return the counter that a name means, without unit, set and rollup: sm__cycles_active."""
    unit, _, rest = name.rpartition("__")
    return f"{unit.rpartition('.')[2]}__{rest.partition('.')[0]}"


def of_chip(capability: str) -> list[str]:
    """Return the prefixed names known for chips with this compute capability ("9.0")."""
    known = table()["chips"].get(capability) or {"set": "", "units": {}}
    return [
        rolled(f"{'' if unit == 'whole' else unit + '.'}{known['set']}.{name}")
        for unit, names in known["units"].items()
        for name in names
    ]


def candidates(own: Sequence[str], capability: str) -> list[str]:
    """Return the counters to qualify; `own` is the chip's own list, [] if it has none."""
    named = list(dict.fromkeys([*map(rolled, own), *of_chip(capability)]))
    covered = {counter(name).removesuffix("_realtime") for name in named}
    return named + [rolled(name) for name in table()["bare"] if counter(name) not in covered]


def anchors(names: Sequence[str]) -> list[str]:
    """Return the names that can anchor a group, best first."""
    return [name for wanted in table()["anchors"] for name in names if counter(name) == wanted]
