"""Check, before timing, whether both sides compute the same, and look for side effects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from fathom.errors import BadInputError
from fathom.referee.blocks import sampled
from fathom.referee.ceilings import CallWork
from fathom.referee.child.side import GRADIENT
from fathom.referee.compare.decode import Saved
from fathom.referee.compare.judge import Judge
from fathom.referee.sides import BASELINE, CANDIDATE, SideError, SideProcess, Sides, blaming_baseline
from fathom.referee.verdict import Refusal
from fathom.units import NS_PER_S

ALONE = frozenset({"patched-timer"})  # refused even if the baseline does the same
TRIALS, MOST_TRIALS = 3, 300  # calls compared before timing; those after the first TRIALS take limited time


class About(msgspec.Struct):
    """Facts about the baseline's process: its device, and the sizes, dtype and variants of its inputs.

    `longest` is the longest extent of an input, `largest` the most elements of one. `repeatable` means that
    equal seeds give equal inputs, `varied` that different seeds give different inputs.
    """

    device: str
    input_bytes: int
    longest: int
    largest: int
    dtype: str
    variants: list[str]
    repeatable: bool
    varied: bool


class Reference:
    """The source of reference results: the user's reference or else the baseline, in double precision if
    possible; if the baseline fails in double precision, its own result."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self.worker: SideProcess | None = None
        self.description = "the baseline's own result"
        self._stack = ExitStack()

    def __enter__(self) -> Reference:
        given = self._sides.pair.reference
        target = str(given or self._sides.pair.plain)
        name = "the reference" if given else "the baseline"
        for upcast, words in ((True, f"{name} in double precision"), (False, name)):
            if self._works(target, upcast, given is not None):
                self.description = words
                return self
            if not given:
                return self
        raise BadInputError(f"The reference {target} cannot be used: it fails on these inputs.")

    def _works(self, target: str, upcast: bool, given: bool) -> bool:
        with suppress(SideError):
            worker = self._stack.enter_context(self._sides.worker(self._sides.spec(target, upcast=upcast)))
            if _double(self._sides.compute(worker, 1)) or given:
                self.worker = worker
        return self.worker is not None

    @property
    def exact(self) -> bool:
        """Whether reference results are computed separately, instead of being the baseline's results."""
        return self.worker is not None

    def of(self, seed: int, baseline: Saved, variant: str | None = None) -> Saved:
        """Return the reference result of one call, or `baseline` if there is none."""
        with suppress(SideError):
            return self._sides.compute(self.worker, seed, variant) if self.worker else baseline
        return baseline

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _double(saved: Saved) -> bool:
    floating = [leaf.dtype for leaf in saved.leaves if "float" in leaf.dtype or "complex" in leaf.dtype]
    return all(dtype in ("float64", "complex128") for dtype in floating)


class Baseline:
    """Context manager with the processes of the baseline and the reference, and the baseline's side effects.

    It serves the inspection of many candidates. Raises BadInputError.
    """

    def __init__(self, sides: Sides, seeds: Iterator[int]) -> None:
        self.sides, self._seeds = sides, seeds
        self.notes: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Baseline:
        try:
            with blaming_baseline():
                self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _begin(self) -> None:
        self.process = self._stack.enter_context(self.sides.start(BASELINE))
        self.about = _usable(msgspec.convert(self.process.ask("about"), About))
        self.sides.key = self.process.key
        self.reference = self._stack.enter_context(Reference(self.sides))
        result = self.sides.compute(self.process, next(self._seeds))
        _comparable(result)
        chosen = [next(self._seeds) for _ in range(3)]
        self.side_effects = {Refusal(*pair) for pair in self.process.ask("inspect", seeds=chosen)}
        self.work = self._work()
        self.work.written = written(result)

    def _work(self) -> CallWork:
        try:
            return CallWork(**self.process.ask("work"))
        except SideError as error:
            self.notes.append(f"The work of a call is not known: {error}.")
            return CallWork()

    def judge(self, claim: str | None = None, reduction: int | None = None) -> Judge:
        """Make a judge for one candidate."""
        longest, largest = self.about.longest, self.about.largest
        return Judge(claim, reduction, longest, largest, self.reference.exact, self.sides.turn)

    def results(self, seed: int, variant: str | None = None) -> tuple[Saved, Saved]:
        """The baseline's result and the reference's. Raises SideError if the baseline fails."""
        theirs = self.sides.compute(self.process, seed, variant)
        return theirs, self.reference.of(seed, theirs, variant)

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@dataclass
class Inspection:
    """An inspection's results: `reasons` to refuse the candidate, and `shared` ones, also of the baseline."""

    reasons: list[Refusal] = field(default_factory=list)
    shared: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inspect(
    sides: Sides, baseline: Baseline, judge: Judge, seeds: Iterator[int], more_s: float = 0.0
) -> Inspection:
    """Start the candidate, and compare results and side effects; comparing more results takes `more_s`.

    Raises BadInputError if the candidate does not exist.
    """
    inspection = Inspection(notes=list(baseline.notes))
    try:
        with sides.start(CANDIDATE) as candidate:
            inspection.reasons += _results(sides, baseline, judge, candidate, seeds, more_s)
            if inspection.reasons:
                inspection.reasons += _late(candidate, seeds)
            _side_effects(baseline, candidate, seeds, inspection)
            if not inspection.reasons:
                _variants(sides, baseline, judge, candidate, next(seeds), inspection)
    except SideError as error:
        inspection.reasons.append(Refusal(error.code, str(error)))
    return inspection


def _results(
    sides: Sides,
    baseline: Baseline,
    judge: Judge,
    candidate: SideProcess,
    seeds: Iterator[int],
    more_s: float,
) -> list[Refusal]:
    """Compare results of TRIALS calls, then of more calls for `more_s`, until one is wrong."""
    reasons: list[Refusal] = []
    until = sides.turn.now_ns() + NS_PER_S * more_s
    for number, seed in enumerate(islice(seeds, MOST_TRIALS)):
        if number >= TRIALS and (reasons or sides.turn.now_ns() >= until):
            break
        with blaming_baseline():
            theirs, exact = baseline.results(seed)
        judge.gross = number >= TRIALS
        wrong = judge.judge(sides.compute(candidate, seed), theirs, exact)
        reasons += (_rare(reason, number) for reason in wrong) if judge.gross else wrong
    judge.gross = False
    return reasons


def _rare(reason: Refusal, agreed: int) -> Refusal:
    """Return the reason of a wrong call after others that agreed, which a lower precision cannot explain."""
    code = "wrong-result" if reason.code == "lower-precision" else reason.code
    return Refusal(code, f"{reason.detail}; the {agreed} calls before it agreed")


def written(result: Saved) -> float:
    """Return the bytes that the call wrote, without gradients, which are computed after it."""
    return float(sum(len(leaf.data) for leaf in result.leaves if not leaf.place.startswith(GRADIENT)))


def _usable(about: About) -> About:
    if not about.repeatable:
        raise BadInputError("The inputs differ from call to call; derive them from the seed alone.")
    if not about.varied:
        raise BadInputError("The inputs are the same for every seed; derive them from the seed.")
    return about


def _comparable(baseline: Saved) -> None:
    for leaf in baseline.leaves:
        if leaf.form["kind"] == "object":
            what = f"The baseline returns a {leaf.form['type']}, which cannot be compared"
            raise BadInputError(f"{what}; return tensors or arrays.")


def _late(candidate: SideProcess, seeds: Iterator[int]) -> Iterator[Refusal]:
    """Yield a refusal if wrong results are still being written after the call. Tries TRIALS times."""
    for _ in range(TRIALS):
        candidate.ask("place", seeds=[next(seeds)])
        if late := sampled(candidate, latency="included", check=True).late:
            yield Refusal(late, "its result changed after it had returned")
            return


def _side_effects(
    baseline: Baseline, candidate: SideProcess, seeds: Iterator[int], inspection: Inspection
) -> None:
    for pair in candidate.ask("inspect", seeds=[next(seeds) for _ in range(3)]):
        reason = Refusal(*pair)
        excused = reason in baseline.side_effects and reason.code not in ALONE
        (inspection.shared if excused else inspection.reasons).append(reason)


def _variants(
    sides: Sides, baseline: Baseline, judge: Judge, candidate: SideProcess, seed: int, inspection: Inspection
) -> None:
    for name in baseline.about.variants:
        try:
            theirs, exact = baseline.results(seed, name)
        except SideError as error:
            inspection.notes.append(f"The baseline fails on the variant {name}: {error}.")
            continue
        try:
            mine = sides.compute(candidate, seed, name)
        except SideError as error:
            inspection.reasons.append(Refusal("fails-on-variants", f"{name}: {error}"))
            continue
        for reason in judge.judge(mine, theirs, exact):
            detail = f"{name}: {reason.detail} ({reason.code})"
            inspection.reasons.append(Refusal("fails-on-variants", detail))
