"""Libraries that autotune or build kernels repeatedly."""

from __future__ import annotations

import re

from fathom.analysis.replay import FLOOR
from fathom.diagnosis.rules.candidates import stalled
from fathom.diagnosis.rules.host.launch_bound import LAUNCHING, preparations
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Preparation, Searches, Signals

PLANS = re.compile("cudnn|miopen")  # libraries that build a plan, or a kernel, for each shape
ATTENTION = "; torch.backends.cuda.enable_cudnn_sdp(False)"
OFTEN = 0.5  # calls per step: fewer are for new shapes
LEAST_MS = 1.0  # per call: building a plan takes tens of milliseconds, a cache lookup less than one


@rule("host-autotuning")
def searching(signals: Signals) -> Candidates:
    """Find autotuning by its events, and plan building by long times without a runtime call."""
    yield from _searched(signals, signals["host.searches"])
    built = filter(_builds, preparations(signals))
    yield from (_built(preparation) for preparation in built if _fits(signals, preparation))


def _searched(signals: Signals, searches: Searches) -> Candidates:
    """Return a candidate for autotuning in the recorded steps, which represent all steps."""
    gain = (stalled(signals) if searches.steps < 1 else 0.0) or searches.ms
    if not searches.op or not gain:
        return
    says = f"share of recorded steps in which {searches.op} times several kernels"
    yield Candidate(
        kind="host-autotuning",
        claims=[],
        evidence=[
            Evidence(says, 100 * searches.steps, "%"),
            Evidence("time in these ops", searches.ms, "ms per step"),
        ],
        gain_ms=gain,
        doubt=0.15,
        check="set torch.backends.cudnn.benchmark = False, and time the steps",
        source=searches.source,
    )


def _builds(preparation: Preparation) -> bool:
    """Return whether the op builds a plan in most steps; a plan built once does not count."""
    long = preparation.ms >= LEAST_MS * preparation.count
    return long and preparation.count >= OFTEN and PLANS.search(preparation.op) is not None


def _fits(signals: Signals, preparation: Preparation) -> bool:
    """Return whether clean steps are long enough to contain the search; if not, only recorded steps had new
    shapes.
    """
    recorded = signals["step.timeline_ms"]
    rest = FLOOR * (recorded - preparation.idle_ms)
    return preparation.idle_ms + rest <= signals.number("step.mean_ms", recorded)


def _built(preparation: Preparation) -> Candidate:
    without_cudnn = ATTENTION if "attention" in preparation.op else ""
    return Candidate(
        kind="host-autotuning",
        claims=[],
        evidence=[
            Evidence(f"preparation in {preparation.op} before it launches", preparation.ms, "ms per step"),
            Evidence("calls with this preparation", preparation.count, "per step"),
        ],
        changes=(preparation.without,),
        spill=LAUNCHING,
        doubt=0.15,
        check=f"fathom what-if SOUNDING '{preparation.without}'{without_cudnn}",
        source=preparation.source,
    )
