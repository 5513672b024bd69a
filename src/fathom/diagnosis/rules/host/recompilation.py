"""Guards that fail again and again, and frames that run uncompiled since Dynamo's limit of versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from fathom.diagnosis.rules.host.launch_bound import RARE
from fathom.diagnosis.rules.kernels.not_compiled import FEW, compiled, fusing
from fathom.diagnosis.rules.rule import Candidate, Evidence
from fathom.diagnosis.signals import Compiled, Eager, Recompiled, Signals

KIND = "host-recompilation"
SHOWN = 3  # frames
NUMBER = re.compile(r"^[\w.\[\]'\"]+ == -?[\d.e-]+$")  # a guard on a Python number
AS_TENSOR = "Pass the changing number as a tensor, or keep it out of the compiled function"
CHECK = "TORCH_LOGS=recompiles python train.py"


def beyond_the_limit(signals: Signals) -> Iterator[Candidate]:
    """Yield the frames with as many compiled versions as Dynamo allows, if steps run none of them.

    Dynamo still looks for a version in each step. The gain is that of compiled code if the costliest chain
    of kernels is in these frames; else it is unknown, because no step with compiled code was recorded.
    """
    code: Compiled | None = signals.get("host.compiled").value
    frames = [frame for frame in recompiled(signals) if frame.limited]
    if not frames or code is None or code.regions >= RARE or code.lookups < RARE:
        return
    searched = Evidence(
        "searches for a compiled version, without success", code.lookups - code.regions, "per step"
    )
    candidate = Candidate(
        kind=KIND,
        claims=[],
        evidence=[*failed_guards(frames), searched],
        check=CHECK,
        source=frames[0].place,
        costless=True,
        unpredicted="no step with compiled code was recorded undisturbed",
        title="A function runs uncompiled, because it reached the limit of recompilations",
        action=action(frames),
    )
    eager: Eager | None = signals.get("framework.fusible").value
    known = eager is not None and eager.before >= FEW and _inside(eager, frames)
    yield _mended(signals, candidate, eager) if eager and known else candidate


def _inside(eager: Eager, frames: list[Recompiled]) -> bool:
    """Return whether the costliest chain of kernels is in one of the frames."""
    source = eager.source or ""
    files = {(frame.place.rpartition(":")[0], frame.function) for frame in frames}
    return (source.partition("(")[0], source.rpartition(": ")[2]) in files


def _mended(signals: Signals, candidate: Candidate, eager: Eager) -> Candidate:
    """Return the candidate with the gain of compiled code."""
    gained = compiled(signals, eager, evidence=[*candidate.evidence, *fusing(eager)])
    return replace(
        candidate,
        claims=gained.claims,
        evidence=gained.evidence,
        changes=gained.changes,
        spill=gained.spill,
        doubt=gained.doubt,
        unpredicted="",
    )


def recompiled(signals: Signals) -> list[Recompiled]:
    """Return the frames that were compiled again; empty if unknown."""
    frames: list[Recompiled] = signals.get("host.recompiled").value or []
    return frames


def failed_guards(frames: list[Recompiled]) -> list[Evidence]:
    """Return the number of recompilations of each frame, with the guard that failed."""
    says = "recompilations of {0.function} ({0.place}), because a guard failed: {0.why}"
    return [Evidence(says.format(frame), float(frame.times), "times") for frame in frames[:SHOWN]]


def action(frames: list[Recompiled]) -> str:
    """Return what to do about a Python number that changes; empty for other guards, such as shapes."""
    return AS_TENSOR if frames and NUMBER.search(frames[0].why) else ""
