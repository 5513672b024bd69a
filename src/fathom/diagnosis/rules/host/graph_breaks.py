"""A compiled model in many pieces, with Python between them, or one that Dynamo left uncompiled."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from fathom.diagnosis.rules.host.launch_bound import LAUNCHES, RARE, late_launches, uncompiled
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Broken, Compiled, Signals

SHOWN = 3  # places
CHECK = "TORCH_LOGS=graph_breaks python train.py"


@rule("host-graph-breaks")
def graph_breaks(signals: Signals) -> Found:
    """What is behind a break is a function of its own, which the one before it calls.

    A break in a loop makes Dynamo give the whole frame up: its ops are launched one by one, which is
    launch-bound, with this as the cause.
    """
    compiled: Compiled = signals["host.compiled"]
    if compiled.resumed >= RARE:
        yield _in_pieces(signals, compiled)
    elif frames := uncompiled(signals):
        yield from (
            _left(candidate, frames) for candidate in late_launches(signals) if candidate.kind == LAUNCHES
        )


def _in_pieces(signals: Signals, compiled: Compiled) -> Candidate:
    idle, step = signals["step.idle_ms"], signals["step.timeline_ms"]
    return Candidate(
        kind="host-graph-breaks",
        claims=[],
        evidence=[
            Evidence("compiled graphs that go on behind a break", compiled.resumed, "a step"),
            Evidence("Python and guards on the host before these", compiled.between_ms, "ms a step"),
            *_reasons(signals.get("host.breaks").value or []),
        ],
        gain_ms=min(compiled.between_ms / step * signals["step.mean_ms"], idle),
        doubt=0.5,
        confidence=0.7,
        check=CHECK,
        source=compiled.source,
    )


def _reasons(breaks: Iterable[Broken]) -> list[Evidence]:
    """Each with its first place; Dynamo tells all of the process, not of the step alone."""
    places: dict[str, list[str]] = {}
    for broken in breaks:
        places.setdefault(broken.why, []).append(broken.place)
    largest = sorted(places, key=lambda why: -len(places[why]))[:SHOWN]
    return [Evidence(f"break at {places[why][0]}: {why}", len(places[why]), "places") for why in largest]


def _left(launching: Candidate, frames: list[Broken]) -> Candidate:
    """The gain is that of one launch a step; without CUDA graphs (`reduce-overhead`) less is gained."""
    told = [
        Evidence(
            f"ops in {frame.function}, left uncompiled: {frame.why}, at {frame.place}", 100 * frame.share, "%"
        )
        for frame in frames[:SHOWN]
    ]
    return replace(
        launching,
        kind="host-graph-breaks",
        evidence=[*told, *launching.evidence],
        doubt=0.25,
        check=CHECK,
        source=frames[0].place,
    )
