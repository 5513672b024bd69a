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

    Work with a more specific finding (a written-out norm, a chain over one tensor) is claimed by that one.
    """
    eager: Eager = signals["framework.eager"]
    if eager.before < FEW:
        return
    total = family_totals(signals["kernels.work"])
    largest = sorted(eager.saved, key=lambda family: -eager.saved[family])[:MOST_FAMILIES]
    shrunk = tuple(
        f"family:{family}={max(1 - eager.saved[family] / total[family], 0):.6f}"
        for family in largest
        if total.get(family)
    )
    yield Candidate(
        kind=KIND,
        claims=[Claim(Entry.COMPUTE, family, eager.saved[family]) for family in largest],
        evidence=_evidence(eager),
        changes=(*shrunk, *_launching(signals, eager)),
        spill=(*LAUNCHING, PYTHON),
        doubt=DOUBT,
        confidence=0.75,
        check=CHECK,
        source=eager.source,
        module=eager.module,
        general=True,
        least=WORTH,
    )


def _launching(signals: Signals, eager: Eager) -> tuple[str, ...]:
    """Where the host's time is other threads' or the program's own, fewer launches save none of it."""
    if any(candidate.kind != LAUNCHES for candidate in late_launches(signals)):
        return ()
    return (f"dispatching={eager.host:.4f}", f"python={eager.host:.4f}")


def _evidence(eager: Eager) -> list[Evidence]:
    lines = [
        Evidence(
            "time in kernels that run op by op, and that torch.compile would fuse",
            eager.fusible_ms,
            "ms a step",
        ),
        Evidence("number of these kernels", eager.before, "a step"),
        Evidence("kernels that compiled code would launch instead", eager.after, "a step"),
    ]
    if eager.ops:
        lines.append(
            Evidence(f"costliest chain: {', '.join(eager.ops)[:120]}", float(len(eager.ops)), "kernels")
        )
    return lines
