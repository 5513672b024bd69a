"""The crafted kernels as pairs."""

from __future__ import annotations

from fathom.referee import Pair
from faults.kernels.forms import HERE
from faults.kernels.judge import flaws

CALLABLES = HERE / "callables.py"


def pairs() -> dict[str, Pair]:
    """Each flaw and its mended twin, by name."""
    return {name: _pair(name, said.get("finding")) for name, said in flaws().items()}


def _pair(name: str, finding: str | None) -> Pair:
    at = f"{CALLABLES}:{name}"
    return Pair(
        plain=f"{at}.flawed",
        tuned=f"{at}.mended",
        inputs=f"{at}.inputs",
        reference=f"{at}.reference",
        work=f"{at}.work",
        name=name,
        findings=(finding,) if finding else (),
    )
