"""A program that torch runs op by op, where a compiler would fuse kernels and launch fewer."""

from __future__ import annotations

from fathom.analysis.entries import Entry
from fathom.diagnosis.rules.host.launch_bound import LAUNCHES, LAUNCHING, PYTHON, late_launches
from fathom.diagnosis.rules.rule import (
    MOST_FAMILIES,
    Candidate,
    Candidates,
    Claim,
    Evidence,
    family_totals,
    rule,
)
from fathom.diagnosis.signals import Eager, Signals

KIND = "framework-not-compiled"
DOUBT = 0.35  # how far compiled code is from the model of it: a third at most in seven programs on an H200
FEW = 4  # kernels that fuse, a step: fewer are no reason to compile
WORTH = (
    0.05  # of the step: compiling costs minutes, and ties a program to shapes and Python that it can trace
)
CHECK = "model = torch.compile(model), let it compile for some steps, then time the step"


@rule(KIND)
def not_compiled(signals: Signals) -> Candidates:
    """Kernels that fuse move what they share once; launches that go away cost nothing.

    What has a finding of its own (a norm in pieces, a chain over one tensor) is claimed by that.
    """
    found: Eager = signals["framework.eager"]
    if found.before < FEW:
        return
    total = family_totals(signals["kernels.work"])
    largest = sorted(found.saved, key=lambda family: -found.saved[family])[:MOST_FAMILIES]
    shrunk = tuple(
        f"family:{family}={max(1 - found.saved[family] / total[family], 0):.6f}"
        for family in largest
        if total.get(family)
    )
    yield Candidate(
        kind=KIND,
        claims=[Claim(Entry.COMPUTE, family, found.saved[family]) for family in largest],
        evidence=_evidence(found),
        changes=(*shrunk, *_launching(signals, found)),
        spill=(*LAUNCHING, PYTHON),
        doubt=DOUBT,
        confidence=0.75,
        check=CHECK,
        source=found.source,
        module=found.module,
        general=True,
        least=WORTH,
    )


def _launching(signals: Signals, found: Eager) -> tuple[str, ...]:
    """Where the host's time is other threads' or the program's own, fewer launches save none of it."""
    if any(candidate.kind != LAUNCHES for candidate in late_launches(signals)):
        return ()
    return (f"dispatching={found.host:.4f}", f"python={found.host:.4f}")


def _evidence(found: Eager) -> list[Evidence]:
    lines = [
        Evidence(
            "time in kernels that run op by op, and that torch.compile would fuse",
            found.fusible_ms,
            "ms a step",
        ),
        Evidence("number of these kernels", found.before, "a step"),
        Evidence("kernels that compiled code would launch instead", found.after, "a step"),
    ]
    if found.ops:
        lines.append(
            Evidence(f"costliest chain: {', '.join(found.ops)[:120]}", float(len(found.ops)), "kernels")
        )
    return lines
