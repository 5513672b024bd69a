"""Programs in eager mode, for which a compiler would fuse kernels and reduce launches."""

from __future__ import annotations

from typing import Any

from fathom.analysis.entries import Entry
from fathom.diagnosis.grouping import listed
from fathom.diagnosis.rules.candidates import in_clean_rows, on_processor, rows, saving
from fathom.diagnosis.rules.host.launch_bound import LAUNCHES, LAUNCHING, PYTHON, graphed, late_launches
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, rule
from fathom.diagnosis.signals import Eager, Interpreted, Signals

DOUBT = 0.35  # 30 of 36 gains on H200s are inside the interval
CPU_DOUBT = 0.5  # of the gain on a processor, in ten programs on two cores of an EPYC
FEW = 4  # fusible kernels per step: fewer are not worth compiling
WORTH = 0.05  # of the step: compiling takes minutes and restricts the program to traceable Python and shapes
MECHANISM = """\
In eager mode, Python and the dispatcher run for each operation, and each one reads and writes whole tensors.
The compiler generates one function that calls libraries and a few fused kernels.
"""
MS = "ms per step"
CHECK = "model = torch.compile(model), let it compile for some steps, then time the step"


@rule("framework-not-compiled")
def not_compiled(signals: Signals) -> Candidates:
    """Find kernels that could be fused, so that they move shared data once and need fewer launches.

    Kernels with their own finding (an unfused norm, a chain over one tensor) are claimed by that finding.
    """
    if on_processor(signals):
        yield from _on_processor(signals)
        return
    eager: Eager = signals["framework.eager"]
    if eager.before < FEW:
        return
    launching = bool(_launching(signals, eager))
    yield compiled(
        signals,
        eager,
        evidence=fusing(eager),
        confidence=0.75,
        check=CHECK,
        source=eager.source,
        general=True,
        least=WORTH,
        graphed=graphed(signals) if launching else (),  # graphs replace neither threads nor Python
    )


def _on_processor(signals: Signals) -> Candidates:
    """Find a model whose Python and calls of small ops take a large part of a processor's step."""
    step: Interpreted = signals["host.interpreted"]
    if step.before < FEW:
        return
    ops = [
        Claim(row.entry, row.detail, row.ms * step.ops[row.detail])
        for row in signals["step.ledger"]
        if row.entry == Entry.OPS and row.detail in step.ops
    ]
    python = rows(signals, PYTHON, share=step.python)
    saved = [
        Evidence("time between the model's ops that compiling saves", in_clean_rows(signals, python), MS),
        Evidence("time of its ops that compiling saves", in_clean_rows(signals, ops), MS),
    ]
    yield Candidate(
        claims=[*ops, *python],
        evidence=[
            *(line for line in saved if line.value > 0),
            Evidence("ops that could be fused", step.before, "per step"),
            Evidence("calls from generated code", step.after, "per step"),
        ],
        gain_ms=in_clean_rows(signals, [*ops, *python]),
        doubt=CPU_DOUBT,
        confidence=0.6,
        check=f"{CHECK}; on a CPU this needs a C++ compiler",
        mechanism=MECHANISM,
        least=WORTH,
    )


def compiled(signals: Signals, eager: Eager, **fields: Any) -> Candidate:
    """Return a candidate that compiles the kernels of `eager`: fused, and launched in one call each."""
    changes, spill = _launching(signals, eager), (*LAUNCHING, PYTHON)
    shared = {"changes": changes, "spill": spill, "doubt": DOUBT, "module": eager.module}
    return saving(eager.saved, signals, **shared, **fields)


def _launching(signals: Signals, eager: Eager) -> tuple[str, ...]:
    """Return changes of host time; none if other threads or the program's own Python take it."""
    if any(candidate.kind != LAUNCHES for candidate in late_launches(signals)):
        return ()
    return (f"dispatching={eager.host:.4f}", f"python={eager.host:.4f}")


def fusing(eager: Eager) -> list[Evidence]:
    """Return evidence of the kernels that run op by op."""
    fusible = "time in kernels that run op by op and could be fused"
    lines = [
        Evidence(fusible, eager.fusible_ms, MS),
        Evidence("number of these kernels", eager.before, "per step"),
        Evidence("kernels after compilation", eager.after, "per step"),
    ]
    chain = f"costliest chain: {listed(eager.ops)}"
    return [*lines, Evidence(chain, float(len(eager.ops)), "kernels")] if eager.ops else lines
