"""Read the rows of knobs, and keep those that fit a program and its machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal

import msgspec

from fathom.data import load
from fathom.tuner.facts import Facts

GROUPS = ("host", "input", "model", "device")
Changes = Literal["nothing", "rounding", "precision", "randomness", "results"]


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a knob: variables of the environment, acts of the probe, arguments of the command.

    `work` is the work of a step with it over that of the present step, as for another batch size.
    `running` has acts that do in a running program what `environment` does from its start.
    """

    name: str
    environment: dict[str, str] = {}
    acts: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    running: dict[str, Any] = {}
    needs: tuple[str, ...] = ()
    suggested_by: tuple[str, ...] = ()
    work: float = 1.0
    code: str = ""


class Knob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision that the program leaves open; `host.yaml` explains the fields."""

    id: str
    title: str
    values: tuple[Value, ...]
    needs: tuple[str, ...] = ()
    suggested_by: tuple[str, ...] = ()
    actions: dict[str, str] = {}
    acts_on: tuple[str, ...] = ()
    saves: float = 0.01
    changes: Changes = "nothing"
    patience_s: float = 0.0
    carries: str = "time"
    code: str = ""


@cache
def catalogue() -> tuple[Knob, ...]:
    return tuple(knob for group in GROUPS for knob in msgspec.convert(load(__package__, group), list[Knob]))


def fitting(knobs: Iterable[Knob], facts: Facts) -> list[Knob]:
    """Return the knobs whose needs are met, with the values that are possible here."""
    kept = []
    for knob in knobs:
        values = tuple(_distinct(filled(v, facts) for v in knob.values if facts.meet(v.needs)))
        if facts.meet(knob.needs) and values:
            kept.append(msgspec.structs.replace(knob, values=values))
    return kept


def _distinct(values: Iterable[Value | None]) -> Iterator[Value]:
    """Yield each setting once, under its first name."""
    seen = []
    for value in values:
        setting = value and (value.environment, value.acts, value.arguments)
        if value is not None and setting not in seen:
            seen.append(setting)
            yield value


def filled(value: Value, facts: Facts) -> Value | None:
    """Return the value with its numbers filled in; None if the program already runs with it."""
    environment = {name: str(_number(text, facts)) for name, text in value.environment.items()}
    acts, running = (
        {name: _filled(act, facts) for name, act in part.items()} for part in (value.acts, value.running)
    )
    loader = acts.get("loader") or {}
    if loader.get("num_workers") == facts.workers and "prefetch_factor" not in loader:
        return None
    return msgspec.structs.replace(value, environment=environment, acts=acts, running=running)


def _filled(act: Any, facts: Facts) -> Any:
    if isinstance(act, dict):
        return {name: _number(part, facts) for name, part in act.items()}
    return _number(act, facts)


def _number(text: Any, facts: Facts) -> Any:
    return {"$cores": facts.cores, "$half": max(1, facts.cores // 2), "$more": facts.workers + 1}.get(
        text, text
    )
