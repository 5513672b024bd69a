"""A question from the words of a command line or of `fathom.plan`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError
from fathom.machine import parse_price, read_machine, require_machine
from fathom.planner.hardware import Hardware, from_machine, hardware
from fathom.planner.quantity import ASSUMED, Quantity
from fathom.planner.training.choosing import Question
from fathom.planner.training.layout import RECOMPUTE, SHARDING, Job
from fathom.planner.training.possible import ALIASES
from fathom.planner.training.rates import stack as stack_called
from fathom.planner.training.recorded import RecordedJob, Recording
from fathom.planner.training.stating import KEYS, stated
from fathom.planner.workload import model as model_called

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "micro", "shard")
MOST_PARAMETERS = 1e15


def ask(
    model: str,
    on: str = "h100",
    *,
    gpus: int,
    batch: int | None = None,
    seq: int = 8192,
    precision: str = "bf16",
    stack: str = "megatron",
    objective: str = "time",
    tokens: float | None = None,
    price: str | None = None,
    memory: str | None = None,
    within: float | None = None,
    assume: Sequence[str] = (),
    sharding: str | None = None,
    recompute: str | None = None,
    workload: str | Path | None = None,
    **others: Any,
) -> Question:
    """Return the question for `plan_training`. Raises BadInputError for whatever is unknown.

    `others` are degrees, and figures of loading and checkpoints, which `workload`, a file, may state too.
    """
    planned = model_called(model)
    if batch is None:
        raise BadInputError("The plan of a model needs a batch; give --batch, the sequences of a step.")
    if tokens is not None and not 0 < tokens < math.inf:
        raise BadInputError(f"tokens is {tokens}; it must be a number above 0.")
    figures = stated({name: others.pop(name) for name in KEYS if name in others}, workload)
    figures.check_used()
    wanted = {name: value for name, value in others.items() if value is not None}
    if unknown := sorted(wanted.keys() - DEGREES):
        raise BadInputError(
            f"The plan of a model does not use {', '.join(unknown)}; leave it out, or plan a sounding."
        )
    system = _changed(system_called(on), price, memory, [*assume, *figures.assumed()])
    wanted |= _coded("sharding", sharding, SHARDING) | _coded("recompute", recompute, RECOMPUTE)
    return Question(
        planned,
        system,
        stack_called(stack),
        Job(seq, batch, gpus, ALIASES.get(precision.lower(), precision.lower()), figures.loader()),
        wanted,
        objective,
        tokens,
        system["memory"].value if memory else None,
        within,
        figures.saver(),
    )


def is_sounding(name: str) -> bool:
    """Return whether a workload is a recording, by its name."""
    return name.rstrip("/").endswith((".fathom", ".fathom.zip"))


def recorded_job(
    recording: Recording,
    gpus: int,
    on: str | None = None,
    *,
    batch: int | None = None,
    tokens: float | None = None,
    price: str | None = None,
    memory: str | None = None,
    assume: Sequence[str] = (),
    sharding: str | None = None,
    shard: int | None = None,
    parameters: float | None = None,
    workload: str | Path | None = None,
    **others: Any,
) -> RecordedJob:
    """Return the job that spreads a recording over GPUs. Raises BadInputError for whatever is unknown."""
    figures = stated({name: others.pop(name) for name in KEYS if name in others}, workload)
    if given := [name for name, value in others.items() if value is not None]:
        raise BadInputError(
            "A recorded program can be spread by data parallelism only: leave "
            f"{', '.join(sorted(given))} out, or plan its model from a config.json."
        )
    if parameters is not None and not 1 <= parameters <= MOST_PARAMETERS:
        raise BadInputError(f"parameters is {parameters:g}; give 1 to {MOST_PARAMETERS:g}.")
    if tokens is not None and not 0 < tokens < math.inf:
        raise BadInputError(f"tokens is {tokens}; it must be a number above 0.")
    system = system_called(on) if on else recording.here
    system = _changed(system, price, memory, [*assume, *figures.assumed()])
    code = _coded("sharding", sharding, {k: v for k, v in SHARDING.items() if k != "zero2"}).get("sharding")
    usable = system["memory"].value if memory else None
    return RecordedJob(recording, system, gpus, batch, tokens, usable, code, shard, parameters, figures)


def _changed(system: Hardware, price: str | None, memory: str | None, assume: Sequence[str]) -> Hardware:
    system = system.assuming([*assume, *([f"memory={memory}"] if memory else [])])
    if not price:
        return system
    paid = parse_price(price)
    return system.having(price=Quantity(paid.amount, f"{paid.currency}/h", ASSUMED, "given by the user"))


def system_called(name: str) -> Hardware:
    """Return a system by name, or that of a machine file or of a recorded sounding's `machine.json`."""
    path = Path(name)
    if path.suffix == ".json":
        return from_machine(require_machine(read_machine(path), str(path)), name=path.stem)
    if path.exists():
        raise BadInputError(
            f"{name} is not a machine file; give the JSON file of a measured machine, or a system like h100."
        )
    return hardware(name)


def _coded(name: str, value: str | None, codes: dict[str, int]) -> dict[str, int]:
    if value is None:
        return {}
    if value not in codes:
        raise BadInputError(f"{value!r} is not a kind of {name}; choose one of {', '.join(codes)}.")
    return {name: codes[value]}
