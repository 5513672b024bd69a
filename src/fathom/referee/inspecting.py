"""Before anything is timed: do both sides compute the same, and what do they do besides?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from fathom.errors import BadInputError
from fathom.referee.compare.decode import Saved
from fathom.referee.compare.judge import Judge
from fathom.referee.sides import BASELINE, CANDIDATE, Sides, blaming_baseline
from fathom.referee.verdict import Reason
from fathom.referee.worker import SideError, Worker

ALONE = frozenset({"patched-timer"})  # no excuse, though the baseline does the same
TRIALS = 3


class Reference:
    """What results are compared with: the user's reference, else the baseline, in double precision; where
    it cannot be had so, the baseline's own result."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.worker: Worker | None = None
        self.told = "the baseline's own result"
        self._stack = ExitStack()

    def __enter__(self) -> Reference:
        given = self._sides.pair.reference
        target = str(given or self._sides.pair.plain)
        name = "the reference" if given else "the baseline"
        for upcast, words in ((True, f"{name} in double precision"), (False, name)):
            if self._works(target, upcast, given is not None):
                self.told = words
                return self
            if not given:
                return self
        raise BadInputError(f"The reference {target} cannot be used; it fails on these inputs.")

    def _works(self, target: str, upcast: bool, given: bool) -> bool:
        worker = Worker(self._sides.spec(target, upcast=upcast), self._sides.patience_s)
        try:
            self.worker = self._stack.enter_context(worker)
            found = self._sides.compute(self.worker, 1)
        except SideError:
            self.worker = None
            return False
        if given or _double(found):
            return True
        self.worker = None
        return False

    @property
    def exact(self) -> bool:
        """Whether it is more exact than the baseline."""
        return self.worker is not None

    def of(self, seed: int, baseline: Saved, variant: str | None = None) -> Saved:
        """The reference of one call."""
        if self.worker is None:
            return baseline
        try:
            return self._sides.compute(self.worker, seed, variant)
        except SideError:
            return baseline

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _double(saved: Saved) -> bool:
    floating = [leaf.dtype for leaf in saved.leaves if "float" in leaf.dtype or "complex" in leaf.dtype]
    return all(dtype in ("float64", "complex128") for dtype in floating)


@dataclass
class Inspection:
    """What was found: `reasons` against the candidate, `shared` ones that the baseline gives too."""

    reasons: list[Reason] = field(default_factory=list)
    shared: list[Reason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)  # the baseline's


def inspect(sides: Sides, reference: Reference, judge: Judge, seeds: Iterator[int]) -> Inspection:
    """Raises BadInputError where the baseline or its inputs cannot be used."""
    found = Inspection()
    with ExitStack() as stack:
        with blaming_baseline():
            baseline = stack.enter_context(sides.start(BASELINE))
            found.about = _usable(baseline.about)
            sides.key = baseline.about["key"]
            found.about["work"] = _work(baseline, found)
        judge.longest, judge.largest = found.about["longest"], found.about["largest"]
        try:
            candidate = stack.enter_context(sides.start(CANDIDATE))
            _results(sides, reference, judge, (baseline, candidate), seeds, found)
            _besides(baseline, candidate, seeds, found)
            if not found.reasons:
                _variants(sides, reference, judge, (baseline, candidate), next(seeds), found)
        except SideError as error:
            found.reasons.append(Reason(error.code, str(error)))
    return found


def _work(baseline: Worker, found: Inspection) -> dict[str, Any]:
    try:
        return dict(baseline.ask("work"))
    except SideError as error:
        found.notes.append(f"What a call has to do is not known: {error}.")
        return {}


def _usable(about: dict[str, Any]) -> dict[str, Any]:
    if not about["repeatable"]:
        raise BadInputError("The inputs differ from call to call; draw them from their seed alone.")
    if not about["varied"]:
        raise BadInputError("The inputs are the same for every seed; draw them from the seed.")
    return about


def _results(
    sides: Sides,
    reference: Reference,
    judge: Judge,
    workers: tuple[Worker, Worker],
    seeds: Iterator[int],
    found: Inspection,
) -> None:
    for _ in range(TRIALS):
        seed = next(seeds)
        with blaming_baseline():
            theirs = sides.compute(workers[0], seed)
            exact = reference.of(seed, theirs)
        _comparable(theirs)
        found.reasons += judge.judge(sides.compute(workers[1], seed), theirs, exact)


def _comparable(baseline: Saved) -> None:
    for leaf in baseline.leaves:
        if leaf.form["kind"] == "object":
            kind = leaf.form["type"]
            raise BadInputError(
                f"The baseline returns a {kind}, which cannot be compared; return tensors or arrays."
            )


def _besides(baseline: Worker, candidate: Worker, seeds: Iterator[int], found: Inspection) -> None:
    chosen = [next(seeds) for _ in range(3)]
    with blaming_baseline():
        theirs = {Reason(*pair) for pair in baseline.ask("inspect", seeds=chosen)}
    for pair in candidate.ask("inspect", seeds=chosen):
        reason = Reason(*pair)
        excused = reason in theirs and reason.code not in ALONE
        (found.shared if excused else found.reasons).append(reason)


def _variants(
    sides: Sides,
    reference: Reference,
    judge: Judge,
    workers: tuple[Worker, Worker],
    seed: int,
    found: Inspection,
) -> None:
    for name in found.about["variants"]:
        try:
            theirs = sides.compute(workers[0], seed, name)
        except SideError as error:
            found.notes.append(f"The baseline fails on the variant {name}: {error}.")
            continue
        try:
            mine = sides.compute(workers[1], seed, name)
        except SideError as error:
            found.reasons.append(Reason("fails-on-variants", f"{name}: {error}"))
            continue
        for reason in judge.judge(mine, theirs, reference.of(seed, theirs, name)):
            found.reasons.append(Reason("fails-on-variants", f"{name}: {reason.detail} ({reason.code})"))
