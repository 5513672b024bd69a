"""A pair: one computation twice, plain and tuned, with all that a proof and the suite of faults need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError
from fathom.referee import address
from fathom.referee.verdict import codes

Where = str | Callable[..., Any]
Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two functions, or two whole commands, each a tuple of words.

    Functions are given as `module:function`, `file.py:function`, or themselves where they can be imported.

    `inputs(seed)` returns a call's arguments: a tuple, a dict of keywords, both, or one value; the same for
    the same seed. `reference` computes the same, as exactly as it can; by default it is the plain form in
    double precision. `variants(seed)` returns further inputs by name, odd shapes say, which are compared and
    not timed. `work(*inputs)` returns `{"flops", "bytes", "unit"}` of a call: what it must do and move, and
    the ceiling that bounds its arithmetic (`matmul.bf16`). `precision` is what the tuned form declares to
    compute in, where that is less than its results' dtype (`tf32`). `reduction` is how many terms an element
    of the result sums. `allow` are codes of reasons that the tuned form openly gives. `findings` are those
    that name it: they appear on the plain form and not on the tuned one.

    Of commands only `metrics` (the file that both write, see `prove_commands`), `agree` (how far its values
    may be apart, as a share, where that is more than scatter and rounding), `allow`, `name` and `findings`
    count.
    """

    plain: Where | Command
    tuned: Where | Command
    inputs: Where | None = None
    reference: Where | None = None
    variants: Where | None = None
    work: Where | None = None
    name: str = ""
    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    metrics: Path | None = None
    agree: float | None = None

    @property
    def commands(self) -> tuple[Command, Command] | None:
        """Both forms where they are commands. Raises BadInputError where only one is."""
        if isinstance(self.plain, tuple) and isinstance(self.tuned, tuple):
            return self.plain, self.tuned
        if isinstance(self.plain, tuple) or isinstance(self.tuned, tuple):
            raise BadInputError(
                "One form of the pair is a command, the other a function; give two of a kind."
            )
        return None

    def addressed(self) -> Pair:
        """The same with every function as an absolute address. Raises BadInputError."""
        unknown = set(self.allow) - codes().keys()
        if unknown:
            raise BadInputError(f"'{min(unknown)}' is no reason to refuse; known are {', '.join(codes())}.")
        if self.commands:
            return self
        if self.inputs is None:
            raise BadInputError("The pair has no inputs; name the function that draws them.")
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
