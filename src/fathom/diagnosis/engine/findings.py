"""Turn signals into findings: run the rules, predict gains, and make claims disjoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fathom.analysis import Abstained
from fathom.analysis.replay import Gain
from fathom.analysis.results import Evidence, Finding, Where
from fathom.diagnosis.engine.claims import Sized, by_gain, disjoint, in_clean
from fathom.diagnosis.engine.predict import gain_of, observed, predict
from fathom.diagnosis.kinds import kinds
from fathom.diagnosis.rules import Candidate, NotAnalysed, Rule, needs, rules
from fathom.diagnosis.rules.candidates import on_processor
from fathom.diagnosis.signals import Signals, UnknownSignalError

LEAST = 0.01  # of the step: smaller gains are not reported
MORE = 0.1  # of the gain: with CUDA graphs, less more is not worth their restrictions
GRAPHS = 'saved by compiling with CUDA graphs, as mode="reduce-overhead" does'


def findings(signals: Signals, chosen: Iterable[Rule] | None = None) -> tuple[list[Finding], list[Abstained]]:
    """Return the findings, largest gain first, and the kinds that could not be analysed."""
    step_ms = signals.get("step.mean_ms").value or signals.get("step.ms").value
    candidates, abstained = _looked(signals, rules() if chosen is None else chosen)
    if not step_ms:
        costless = [candidate for candidate in candidates if candidate.costless]
        return [_finding(signals, Sized(candidate, None), None) for candidate in costless], abstained
    ledger = {(r.entry, r.detail): r.ms for r in signals.get("step.ledger").value or []}
    least = LEAST * step_ms
    worth = [candidate for candidate in candidates if candidate.costless or _most(candidate, ledger) >= least]
    idle_ms = signals.get("step.idle_ms").value
    predicted, refused = predict(worth, lambda changes: gain_of(signals, changes), step_ms, idle_ms)
    sure = [sized for sized in predicted if _sure(sized, least, step_ms)]
    clean: dict[tuple[str, str], float] = signals.get("step.clean_ledger").value or ledger
    kept = disjoint(observed(sure, signals.get("step.trials").value or {}), ledger, least, clean)
    headline = signals.get("step.headline_ms").value or step_ms
    moved = [(sized, in_clean(sized, ledger, clean, headline)) for sized in kept]
    settled = sorted((after for before, after in moved if _reported(before, after, headline)), key=by_gain)
    graphed = _with_graphs(signals, settled, headline)
    return [_finding(signals, sized, headline, graphed) for sized in settled], [*abstained, *refused]


def _reported(profiled: Sized, clean: Sized, step_ms: float) -> bool:
    """Return whether a finding of the profiled step is reported with its gain in the clean step.

    If the clean step leaves next to nothing of the gain, the cause itself has to take time in the profiled
    step: then it is irregular. A gain from `spill` rows alone depended on the host's pace in that step.
    """
    candidate, least = profiled.candidate, LEAST * step_ms
    own = sum(claim.ms for claim in candidate.claims if claim.entry not in candidate.spill)
    return candidate.costless or clean.weight >= least or own >= least


def _with_graphs(signals: Signals, settled: list[Sized], step_ms: float) -> dict[str, float]:
    """Return what compiling with CUDA graphs saves, by the kind of the largest finding that it fixes."""
    first = next((sized for sized in settled if sized.candidate.graphed and sized.ms is not None), None)
    gain = gain_of(signals, first.candidate.graphed) if first else None
    if not first or not isinstance(gain, Gain) or gain.ms < (1 + MORE) * (first.alone or 0.0):
        return {}
    return {first.candidate.kind: min(gain.ms, step_ms)}


def _sure(sized: Sized, least: float, step_ms: float) -> bool:
    """Return whether the lower end of the gain is large enough.

    If other causes already save part of the time, the gain is the difference of two predictions and has to
    exceed its uncertainty. The same holds for a remedy that also costs time (`least` of the rule).
    """
    given = sized.candidate.given and not sized.candidate.costless
    wanted = max(least if given else 0.0, sized.candidate.least * step_ms)
    return not wanted or sized.low is None or sized.low >= wanted


def _looked(signals: Signals, chosen: Iterable[Rule]) -> tuple[list[Candidate], list[Abstained]]:
    """Return the candidates of all rules, and the kinds that could not be analysed, with reasons."""
    candidates: list[Candidate] = []
    abstained: list[Abstained] = []
    for rule in chosen:
        mine: list[Candidate] = []
        why: dict[str, str] = {}
        try:
            for candidate in rule.look(signals):
                if candidate.kind not in rule.kinds:
                    raise ValueError(f"{candidate.kind!r} is not a kind of this rule")
                if isinstance(candidate, NotAnalysed):
                    why[candidate.kind] = candidate.why
                else:
                    mine.append(candidate)
        except UnknownSignalError as unknown:
            why = dict.fromkeys(rule.kinds, str(unknown))
        except Exception as error:
            why = dict.fromkeys(rule.kinds, f"its rule failed: {type(error).__name__}: {error}")
        shown = {candidate.kind for candidate in mine}
        candidates += mine
        for kind in rule.kinds:
            if kind not in shown and (text := why.get(kind) or _lacking(signals, kind)):
                abstained.append(Abstained(f"finding {kind}", text))
    return candidates, abstained


def _lacking(signals: Signals, kind: str) -> str:
    """Return the reason why a signal that the kind needs is unknown; empty if all are known."""
    needed = (signals.get(name) for name in needs().get(kind, ()))
    return next((signal.why for signal in needed if signal.value is None), "")


def _most(candidate: Candidate, ledger: dict[tuple[str, str], float]) -> float:
    """Return an upper bound on the gain, in milliseconds."""
    spilled = sum(ms for (entry, _), ms in ledger.items() if entry in candidate.spill)
    return max(sum(claim.ms for claim in candidate.claims) + spilled, candidate.gain_ms or 0.0)


def _line(signals: Signals, candidate: Candidate) -> str | None:
    """Return the line that ran, if the rule only knows the function that launched the claimed work."""
    works = signals.get("kernels.work").value or []
    launched = [work for work in works if work.ran and work.source == candidate.source]
    families = {claim.detail for claim in candidate.claims}
    claimed = [work for work in launched if work.family in families] or launched
    return max(claimed, key=lambda work: work.ms).ran if candidate.source and claimed else candidate.source


def _finding(
    signals: Signals, sized: Sized, step_ms: float | None, graphed: Mapping[str, float] = MappingProxyType({})
) -> Finding:
    kind, candidate = kinds()[sized.candidate.kind], sized.candidate
    step_ms, with_graphs_ms = sized.step_ms or step_ms, graphed.get(kind.id)
    further = [] if with_graphs_ms is None else [Evidence(GRAPHS, with_graphs_ms, "ms per step")]
    return Finding(
        id=kind.id,
        title=candidate.title or kind.title,
        where=Where(
            signals.get("step.rank").value,
            signals.get("step.device").value,
            candidate.module,
            candidate.region,
            _line(signals, candidate),
            candidate.family,
        ),
        evidence=[*candidate.evidence, *further],
        claims=list(candidate.claims),
        unpredicted=candidate.unpredicted,
        gain_ms=sized.ms,
        alone_ms=sized.alone,
        with_graphs_ms=with_graphs_ms,
        low_ms=sized.low,
        high_ms=sized.high,
        share=sized.ms / step_ms if sized.ms is not None and step_ms else None,
        confidence=candidate.confidence,
        mechanism=candidate.mechanism or kind.mechanism,
        remedy=candidate.remedy or kind.remedy,
        action=candidate.action or kind.action,
        check=candidate.check,
        references=list(kind.references),
        changes=list(candidate.changes),
        technique=kind.technique(on_processor(signals)),
        observed=sized.observed,
        predicted_ms=sized.predicted,
    )
