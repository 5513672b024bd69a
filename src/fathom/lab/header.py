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
    """Settings of the pair's proof: fields of the referee's `Pair` and `Settings`."""

    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    latency: Literal["removed", "included"] = "removed"
    cache: Literal["cold", "warm"] = "cold"


class Roles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The technique's group, and names of functions in the file: the plain form, and those for `Pair`.

    Without a reference, results are compared with the plain form in double precision.
    """

    group: Literal["memory", "compute", "schedule", "framework", "input"]
    plain: str
    inputs: str = "inputs"
    reference: str = "reference"
    variants: str = "variants"
    work: str = "work"


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`saves`: the resource; `cost`: modelled gains and costs; `not_when`: cases in which it does not pay.

    `gains`: its purpose; `no_gain`: the chip on which its time did not fall, and why. `findings` are the
    kinds of findings that name it; `no_finding` says why there are none.
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
    """Parse the header in a docstring. A line of `shows` has the form `measure: plain → tuned`.

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
