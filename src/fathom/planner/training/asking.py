"""A question from the words of a command line or of `fathom.plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fathom.errors import BadInputError
from fathom.machine import parse_price, read_machine
from fathom.planner.hardware import Hardware, from_machine, hardware
from fathom.planner.quantity import ASSUMED, Quantity
from fathom.planner.training.choosing import Question
from fathom.planner.training.layout import RECOMPUTE, SHARDING, Job
from fathom.planner.training.rates import stack as stack_called
from fathom.planner.workload import model as model_called


def ask(
    model: str,
    on: str = "h100",
    *,
    gpus: int,
    batch: int,
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
    **degrees: int | None,
) -> Question:
    """Return the question for `plan_training`. Raises BadInputError for whatever is unknown."""
    changes = [*assume, *([f"memory={memory}"] if memory else [])]
    system = system_called(on).assuming(changes)
    if price:
        paid = parse_price(price)
        system = system.having(
            price=Quantity(paid.amount, f"{paid.currency}/h", ASSUMED, "given by the user")
        )
    wanted = {name: value for name, value in degrees.items() if value is not None}
    wanted |= _coded("sharding", sharding, SHARDING) | _coded("recompute", recompute, RECOMPUTE)
    return Question(
        model_called(model),
        system,
        stack_called(stack),
        Job(seq, batch, gpus, precision),
        wanted,
        objective,
        tokens,
        system["memory"].value if memory else None,
        within,
    )


def system_called(name: str) -> Hardware:
    """Return a system by name, or that of a machine file or of a recorded sounding's `machine.json`."""
    path = Path(name)
    if path.suffix == ".json":
        return from_machine(read_machine(path), name=path.stem)
    return hardware(name)


def _coded(name: str, value: str | None, codes: dict[str, int]) -> dict[str, int]:
    if value is None:
        return {}
    if value not in codes:
        raise BadInputError(f"{value!r} is not a kind of {name}; choose one of {', '.join(codes)}.")
    return {name: codes[value]}
