"""Libraries that time several kernels before they use one, or build it, again and again."""

from __future__ import annotations

import re

from fathom.analysis.replay import FLOOR
from fathom.diagnosis.rules.host.launch_bound import LAUNCHING, held
from fathom.diagnosis.rules.host.rarely import stalled
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Held, Searches, Signals

PLANS = re.compile("cudnn|miopen")  # libraries that build a plan, or a kernel, for each shape
ATTENTION = "; torch.backends.cuda.enable_cudnn_sdp(False)"
OFTEN = 0.5  # such calls a step: fewer are of shapes that come for the first time
LEAST_MS = 1.0  # for each: a plan takes tens, what a library only looks up takes less


@rule("host-autotuning")
def searching(signals: Signals) -> Found:
    """A library at work on what to launch: by its events, or by how long it calls nothing."""
    yield from _searched(signals, signals["host.searches"])
    yield from (
        _built(preparation)
        for preparation in held(signals)
        if _builds(preparation) and _fits(signals, preparation)
    )


def _searched(signals: Signals, found: Searches) -> Found:
    """A search in recorded steps: there are others, as these are no different from the rest."""
    gain = (stalled(signals) if found.steps < 1 else 0.0) or found.ms
    if not found.op or not gain:
        return
    yield Candidate(
        kind="host-autotuning",
        claims=[],
        evidence=[
            Evidence(f"of the recorded steps have {found.op} time several kernels", 100 * found.steps, "%"),
            Evidence("time in these ops", found.ms, "ms a step"),
        ],
        gain_ms=gain,
        doubt=0.15,
        check="torch.backends.cudnn.benchmark = False, and time the steps",
        source=found.source,
    )


def _builds(preparation: Held) -> bool:
    """What is built while the device works is no loss, and what is built once is no matter of the step."""
    return (
        bool(PLANS.search(preparation.op))
        and preparation.count >= OFTEN
        and preparation.ms >= LEAST_MS * preparation.count
    )


def _fits(signals: Signals, preparation: Held) -> bool:
    """Whether clean steps have room for it, as it is no shorter there: else recorded ones met new shapes."""
    recorded = signals["step.timeline_ms"]
    rest = FLOOR * (recorded - preparation.idle_ms)
    return preparation.idle_ms + rest <= signals.number("step.mean_ms", recorded)


def _built(preparation: Held) -> Candidate:
    without_cudnn = ATTENTION if "attention" in preparation.op else ""
    return Candidate(
        kind="host-autotuning",
        claims=[],
        evidence=[
            Evidence(f"{preparation.op} prepares before it launches", preparation.ms, "ms a step"),
            Evidence("calls that do", preparation.count, "a step"),
        ],
        changes=(preparation.without,),
        spill=LAUNCHING,
        doubt=0.15,
        check=f"fathom what-if SOUNDING '{preparation.without}'{without_cudnn}",
        source=preparation.source,
    )
