"""A pair: one computation twice, plain and tuned, with all that a proof and the suite of faults need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fathom.errors import BadInputError
from fathom.referee import address
from fathom.referee.verdict import codes

Where = str | Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Functions are given as `module:function`, `file.py:function`, or themselves where they can be imported.

    `inputs(seed)` returns a call's arguments: a tuple, a dict of keywords, both, or one value; the same for
    the same seed. `reference` computes the same, as exactly as it can; by default it is the plain form in
    double precision. `variants(seed)` returns further inputs by name, odd shapes say, which are compared and
    not timed. `work(*inputs)` returns `{"flops", "bytes", "unit"}` of a call: what it must do and move, and
    the ceiling that bounds its arithmetic (`matmul.bf16`). `precision` is what the tuned form declares to
    compute in, where that is less than its results' dtype (`tf32`). `reduction` is how many terms an element
    of the result sums. `allow` are codes of reasons that the tuned form openly gives. `findings` are those
    that name it: they appear on the plain form and not on the tuned one.
    """

    plain: Where
    tuned: Where
    inputs: Where
    reference: Where | None = None
    variants: Where | None = None
    work: Where | None = None
    name: str = ""
    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()

    def addressed(self) -> Pair:
        """The same with every function as an absolute address. Raises BadInputError."""
        unknown = set(self.allow) - codes().keys()
        if unknown:
            raise BadInputError(f"'{min(unknown)}' is no reason to refuse; see fathom prove --help.")
        places = ("plain", "tuned", "inputs", "reference", "variants", "work")
        addresses: dict[str, Any] = {name: _addressed(getattr(self, name)) for name in places}
        return replace(self, **addresses)


def _addressed(where: Where | None) -> str | None:
    if where is None:
        return None
    return address.absolute(where if isinstance(where, str) else address.of(where))


def beside(plain: str, name: str = "inputs") -> str:
    """The address of another function in the place of `plain`."""
    return f"{address.split(plain)[0]}:{name}"
