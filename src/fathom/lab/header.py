"""The header of a technique: YAML in the docstring of its tuned form, read without running it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import yaml

MARK = "title:"  # how the docstring of a technique begins
ARROW = " → "


class Shows(msgspec.Struct, frozen=True):
    """A measure that differs between the forms: a counter or an entry of the ledger, and its two readings."""

    what: str
    plain: str
    tuned: str


class Needs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements: a GPU of at least this compute capability, packages by import name, a version of torch.

    `tools` maps programs of the CUDA toolkit to their minimum versions.
    """

    gpu: bool = False
    capability: float = 0.0
    packages: tuple[str, ...] = ()
    torch: str = ""
    tools: dict[str, str] = {}


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the referee judges the pair: fields of its `Pair` and of its `Settings`."""

    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    latency: Literal["removed", "included"] = "removed"
    cache: Literal["cold", "warm"] = "cold"


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its group in lists, and functions of the file: the plain form, and those that `Pair` needs.

    Without a reference, results are compared with the plain form in double precision.
    """

    group: Literal["memory", "compute", "schedule", "framework", "input"]
    plain: str
    inputs: str = "inputs"
    reference: str = "reference"
    variants: str = "variants"
    work: str = "work"


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`saves`: the resource; `cost`: gains and costs, modelled; `not_when`: when it does not pay.

    `gains`: its purpose; `no_gain`: the chip on which its time did not fall, and why. `findings` are the
    kinds that name it, and `no_finding` says why there are none.
    """

    title: str
    pair: Roles
    saves: str
    idea: str
    cost: str
    not_when: str
    shows: tuple[Shows, ...]
    gains: Literal["time", "memory"] = "time"
    no_gain: str = ""
    findings: tuple[str, ...] = ()
    no_finding: str = ""
    needs: Needs = Needs()
    proof: Proof = Proof()


def parse(docstring: str) -> Header:
    """The header in a docstring, where a line of `shows` reads `measure: plain → tuned`.

    Raises ValueError.
    """
    try:
        rows: dict[str, Any] = yaml.safe_load(docstring)
        rows["shows"] = [_shows(*row) for row in rows.get("shows", {}).items()]
        return msgspec.convert(rows, Header, strict=False)
    except (yaml.YAMLError, msgspec.ValidationError, AttributeError, TypeError) as error:
        raise ValueError(str(error)) from None


def _shows(what: Any, readings: Any) -> dict[str, str]:
    plain, arrow, tuned = str(readings).partition(ARROW)
    if not arrow:
        raise ValueError(f"'shows' has no{ARROW}in {what!r}")
    return {"what": str(what), "plain": plain, "tuned": tuned}
