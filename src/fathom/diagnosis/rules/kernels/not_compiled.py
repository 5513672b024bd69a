"""A program in eager mode, for which a compiler would fuse kernels and launch fewer."""

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
DOUBT = 0.35  # the model was wrong by at most a third in seven programs on an H200
FEW = 4  # fusible kernels per step: fewer are no reason to compile
WORTH = 0.05  # of the step: compiling takes minutes and restricts the program to traceable Python and shapes
CHECK = "model = torch.compile(model), let it compile for some steps, then time the step"


@rule(KIND)
def not_compiled(signals: Signals) -> Candidates:
    """Find fusible kernels: fused, they move shared data once, and the launches saved cost nothing.

    Kernels with their own finding (an unfused norm, a chain over one tensor) are claimed by that finding.
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
    """Changes of the host's time; none if other threads or the program's own Python take it."""
    if any(candidate.kind != LAUNCHES for candidate in late_launches(signals)):
        return ()
    return (f"dispatching={eager.host:.4f}", f"python={eager.host:.4f}")


def _evidence(eager: Eager) -> list[Evidence]:
    lines = [
        Evidence(
            "time in kernels that run op by op, and that torch.compile would fuse",
            eager.fusible_ms,
            "ms per step",
        ),
        Evidence("number of these kernels", eager.before, "per step"),
        Evidence("kernels that compiled code would launch instead", eager.after, "per step"),
    ]
    if eager.ops:
        lines.append(
            Evidence(f"costliest chain: {', '.join(eager.ops)[:120]}", float(len(eager.ops)), "kernels")
        )
    return lines
