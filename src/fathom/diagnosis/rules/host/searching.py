"""Libraries that time several kernels before they use one, again and again."""

from __future__ import annotations

from fathom.diagnosis.rules.host.rarely import stalled
from fathom.diagnosis.rules.rule import Candidate, Evidence, Found, rule
from fathom.diagnosis.signals import Searches, Signals


@rule("host-autotuning")
def searching(signals: Signals) -> Found:
    """A search in recorded steps: there are others, as these are no different from the rest."""
    found: Searches = signals["host.searches"]
    gain = (stalled(signals) if found.steps < 1 else 0.0) or found.ms
    if not found.op or not gain:
        return
    yield Candidate(
        kind="host-autotuning",
        claims=[],
        evidence=[
            Evidence(f"of the recorded steps have {found.op} time several kernels", 100 * found.steps, "%"),
            Evidence("the host is in such ops", found.ms, "ms a step"),
        ],
        gain_ms=gain,
        doubt=0.15,
        check="torch.backends.cudnn.benchmark = False, and time the steps",
        source=found.source,
    )
