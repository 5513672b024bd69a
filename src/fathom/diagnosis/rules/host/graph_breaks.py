"""A compiled model split into many graphs with Python between them, or one that Dynamo left uncompiled."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from fathom.diagnosis.grouping import grouped
from fathom.diagnosis.rules.host.launch_bound import LAUNCHES, RARE, late_launches, uncompiled
from fathom.diagnosis.rules.rule import Candidate, Candidates, Evidence, rule
from fathom.diagnosis.signals import Broken, Compiled, Signals

SHOWN = 3  # places
CHECK = "TORCH_LOGS=graph_breaks python train.py"


@rule("host-graph-breaks")
def graph_breaks(signals: Signals) -> Candidates:
    """Find graphs that resume after a break, and frames that Dynamo failed to compile.

    Dynamo compiles the code after a break as a separate function, which the code before it calls. If a break
    is in a loop, Dynamo leaves the frame uncompiled: its ops are launched one by one, and the step is
    launch-bound.
    """
    compiled: Compiled = signals["host.compiled"]
    if compiled.resumed >= RARE:
        yield _in_pieces(signals, compiled)
    elif frames := uncompiled(signals):
        late = late_launches(signals)
        yield from (_uncompiled(launching, frames) for launching in late if launching.kind == LAUNCHES)


def _in_pieces(signals: Signals, compiled: Compiled) -> Candidate:
    idle, step = signals["step.idle_ms"], signals["step.timeline_ms"]
    return Candidate(
        claims=[],
        evidence=[
            Evidence("compiled graphs that resume after a break", compiled.resumed, "per step"),
            Evidence(
                "host time for Python and guards before these graphs", compiled.between_ms, "ms per step"
            ),
            *_reasons(signals.get("host.breaks").value or []),
        ],
        gain_ms=min(compiled.between_ms / step * signals["step.mean_ms"], idle),
        doubt=0.5,
        confidence=0.7,
        check=CHECK,
        source=compiled.source,
    )


def _reasons(breaks: Iterable[Broken]) -> list[Evidence]:
    """Return the most frequent reasons for breaks in the process (not just the step), with first places."""
    places = grouped(breaks, lambda graph_break: graph_break.why)
    largest = sorted(places.items(), key=lambda item: -len(item[1]))[:SHOWN]
    return [Evidence(f"break at {some[0].place}: {why}", len(some), "places") for why, some in largest]


def _uncompiled(launching: Candidate, frames: list[Broken]) -> Candidate:
    """Return the launch-bound candidate with this cause, whose gain assumes one launch per step.

    Without CUDA graphs (`reduce-overhead`) the gain is smaller.
    """
    says = "share of ops in {0.function}, which was left uncompiled at {0.place}: {0.why}"
    uncompiled_frames = [Evidence(says.format(frame), 100 * frame.share, "%") for frame in frames[:SHOWN]]
    return replace(
        launching,
        kind="host-graph-breaks",
        evidence=[*uncompiled_frames, *launching.evidence],
        doubt=0.25,
        check=CHECK,
        source=frames[0].place,
    )
