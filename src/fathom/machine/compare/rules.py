"""The rules of a comparison, as data."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

import msgspec

from fathom.data import load
from fathom.machine.compare.contract import Severity
from fathom.machine.compare.readers import Value


class ComparedProperty(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One property to compare; see the head of `rules.yaml`."""

    id: str
    what: str
    reads: list[str]
    when: Literal["other", "less", "beyond", "version"]
    severity: Severity
    why: str
    spoils: list[str]
    needs: Literal["", "gpus", "several"] = ""
    tolerance: float = 0.0
    numbers: int = 2
    later: Severity = "carries over"
    unit: str = ""
    built_in: bool = False  # a fixed property of the hardware: equal fingerprints settle it

    def judge(self, a: Value, b: Value) -> Severity:
        """Return how badly a change from value `a` to value `b` affects a result."""
        if a == b:
            return "carries over"
        if self.when == "version":
            front_a, front_b = (_numbers(str(v))[: self.numbers] for v in (a, b))
            return self.severity if front_a != front_b else self.later
        if isinstance(a, int | float) and isinstance(b, int | float):
            return self._by_number(a, b)
        return self.severity

    def _by_number(self, a: float, b: float) -> Severity:
        if self.when == "less":
            return self.severity if b < a * (1 - self.tolerance) else "carries over"
        far = self.when == "other" or abs(b - a) > self.tolerance * max(abs(a), abs(b))
        return self.severity if far else "carries over"


class Rules(msgspec.Struct, forbid_unknown_fields=True):
    """Kinds of results by id, those that need a GPU, and the rules."""

    kinds: dict[str, str]
    of_gpu: list[str]
    rules: list[ComparedProperty]


@cache
def rules() -> Rules:
    """Load `rules.yaml`."""
    return msgspec.convert(load(__package__, "rules"), Rules)


def _numbers(version: str) -> list[int]:
    """Parse `2.11.0+cu130` to [2, 11, 0]: the part after the plus names a build."""
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
