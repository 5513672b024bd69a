"""Find the tightest limit of a kernel family, and the reasons, from its measures."""

from __future__ import annotations

from fathom.analysis.measures.results import Level, Measure, Reason

SATURATED, BUSY = 0.80, 0.60  # use of a resource above which it sets the pace, or nearly does
LATENCY = "latency"
NOT_KNOWN = "not known"
_MOST_SPECIFIC_FIRST = (  # unhealthy measures
    "launch_time", "grid_covers", "local_per_thread", "spills_ld", "spills_st", "tail", "sm_active",
    "bank_conflicts_ld", "bank_conflicts_st", "sectors_per_request_ld", "sectors_per_request_st",
    "sector_use_ld", "sector_use_st", "dram_over_compulsory", "threads_per_instruction",
    "waiting_share_long_scoreboard", "waiting_share_short_scoreboard", "occupancy", "occupancy_reached",
)  # fmt: skip
_CAUSES = {
    "launch_time": "short launches",
    "grid_covers": "small grid",
    "local_per_thread": "spills",
    "tail": "tail wave",
}
_REPEATS = {"tail": "grid_covers", "sm_active": "grid_covers"}  # same cause


def limit(measures: list[Measure], levels: list[Level]) -> tuple[str, float | None, list[Reason]]:
    """Return the tightest limit, the share of it in use, and the reasons, most specific first.

    The limit is the most used resource if its use is high. Otherwise it is latency if counters were read,
    else the ceiling that the op's work comes closest to.
    """
    resources = sorted((m for m in measures if m.resource), key=lambda measure: -measure.value)
    reasons = _unhealthy(measures)
    if resources:
        top = resources[0]
        share = top.value / 100
        named = top.title if share >= BUSY else _unused(reasons, LATENCY)
        others = [reason for reason in reasons if reason.measure != top.name]
        return named, share, [_about(top), *others]
    best = max(levels, key=lambda level: level.used, default=None)
    used = best.used if best else None
    if best is not None and best.used >= BUSY:
        return best.name, used, reasons
    return _unused(reasons, NOT_KNOWN), used, reasons


def _unused(reasons: list[Reason], otherwise: str) -> str:
    """Return the limit if no resource is used much: short launches, a small grid and so on."""
    return _CAUSES.get(reasons[0].measure, otherwise) if reasons else otherwise


def _about(top: Measure) -> Reason:
    share = top.value / 100
    if share >= SATURATED:
        text = f"it is bound by {top.title}: {top.value:.0f} % of its peak"
        text += f"; {top.advice}" if top.advice else ""
    elif share >= BUSY:
        text = (
            f"its most used resource is {top.title} with {top.value:.0f} %: near the limit, with some waiting"
        )
    else:
        text = f"no resource is used much: the most is {top.title} with {top.value:.0f} %, so it waits"
    return Reason(text, top.name, 1.0 + share)


def _unhealthy(measures: list[Measure]) -> list[Reason]:
    reasons = []
    unhealthy = {measure.name for measure in measures if measure.advice}
    for measure in measures:
        if measure.advice and _REPEATS.get(measure.name) not in unhealthy:
            known = measure.name in _MOST_SPECIFIC_FIRST
            weight = (
                1 - _MOST_SPECIFIC_FIRST.index(measure.name) / len(_MOST_SPECIFIC_FIRST) if known else 0.0
            )
            reasons.append(Reason(measure.advice, measure.name, weight))
    return sorted(reasons, key=lambda reason: -reason.weight)
