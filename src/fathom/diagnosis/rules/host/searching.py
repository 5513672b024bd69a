"""Libraries that autotune or build kernels repeatedly."""

from __future__ import annotations

import re

from msgspec.structs import replace

from fathom.analysis.replay import FLOOR
from fathom.diagnosis.rules.candidates import stalled
from fathom.diagnosis.rules.host.launch_bound import LAUNCHING, preparations
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Preparation, Searches, Signals

PLANS = re.compile("cudnn|miopen")  # libraries that build a plan, or a kernel, for each shape
ATTENTION = "attention"
FLASH = "torch.backends.cuda.enable_cudnn_sdp(False)"
MECHANISM = (
    "scaled_dot_product_attention chooses cuDNN on recent GPUs if it is enabled. For each new shape, cuDNN "
    "builds a plan and a kernel, which takes tens of milliseconds of the host. If the lengths of queries or "
    "keys change in each step, so does the shape. Flash attention runs one kernel for all lengths."
)
REMEDY = f"""\
{FLASH}             # at the start of the program
with sdpa_kernel(SDPBackend.FLASH_ATTENTION): ...       # or for one part: from torch.nn.attention
model.generate(..., cache_implementation="static")      # or one length for all tokens
"""
OFTEN = 0.5  # calls per step: fewer are for new shapes
LEAST_BUILT = 0.8  # of the preparation: its mean over few recorded steps was longer on an H200 (one program)
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
    """Return whether clean steps are long enough to contain most of the search; if not, only recorded steps
    had new shapes.
    """
    recorded = signals["step.timeline_ms"]
    rest = FLOOR * (recorded - preparation.idle_ms)
    return LEAST_BUILT * preparation.idle_ms + rest <= signals.number("step.mean_ms", recorded)


def _built(preparation: Preparation) -> Candidate:
    candidate = Candidate(
        claims=[],
        evidence=[
            Evidence(f"preparation in {preparation.op} before it launches", preparation.ms, "ms per step"),
            Evidence("calls with this preparation", preparation.count, "per step"),
        ],
        changes=(preparation.without,),
        spill=LAUNCHING,
        doubt=0.15,
        check=f"fathom what-if SOUNDING '{preparation.without}'",
        source=preparation.source,
    )
    return _of_attention(candidate) if ATTENTION in preparation.op else candidate


def _of_attention(candidate: Candidate) -> Candidate:
    """Return the candidate with the texts for attention, which flash computes without a plan."""
    return replace(
        candidate,
        title="cuDNN builds an attention kernel for each new length",
        action="Use flash attention instead of cuDNN's: it needs no kernel for each length",
        mechanism=MECHANISM,
        remedy=REMEDY,
        check=f"{candidate.check}; {FLASH}",
    )
