"""Candidates: the counters of the chip's own set, of `wanted.yaml`, and bare names for what neither has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fathom.data import load


@cache
def table() -> dict[str, Any]:
    """`wanted.yaml`."""
    return load(__package__, "wanted")


def rolled(name: str) -> str:
    """The name with the default rollup, if it has none of its own."""
    return name if "." in name.rpartition("__")[2] else name + table()["rollup"]


def counter(name: str) -> str:
    """The counter that a name means, without unit, set and rollup: sm__cycles_active."""
    unit, _, rest = name.rpartition("__")
    return f"{unit.rpartition('.')[2]}__{rest.partition('.')[0]}"


def of_chip(capability: str) -> list[str]:
    """Prefixed names that are known of chips with this compute capability ("9.0")."""
    known = table()["chips"].get(capability) or {"set": "", "units": {}}
    return [
        rolled(f"{'' if unit == 'whole' else unit + '.'}{known['set']}.{name}")
        for unit, names in known["units"].items()
        for name in names
    ]


def candidates(own: Sequence[str], capability: str) -> list[str]:
    """What to qualify: `own` is what the chip lists itself, [] where it does not tell."""
    named = list(dict.fromkeys([*map(rolled, own), *of_chip(capability)]))
    covered = {counter(name).removesuffix("_realtime") for name in named}
    return named + [rolled(name) for name in table()["bare"] if counter(name) not in covered]


def anchors(names: Sequence[str]) -> list[str]:
    """The names among these that may anchor a group, best first."""
    return [name for wanted in table()["anchors"] for name in names if counter(name) == wanted]
