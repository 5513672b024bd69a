"""The search: Optuna proposes candidates, the most promising first; each one's result is kept on disk."""

from __future__ import annotations

import logging
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, stdev
from typing import TYPE_CHECKING, Any

from fathom.errors import FathomError
from fathom.recorder import Applied
from fathom.tuner.effects import LEAST_ERROR, Effect, Name, difference, effects
from fathom.tuner.knobs import Knob, Value
from fathom.tuner.priors import Prior, in_order, predicted
from fathom.tuner.results import Tried
from fathom.tuner.running import merged

if TYPE_CHECKING:
    import optuna

AS_IT_IS = "as it is"
STARTUP = 10  # candidates before the sampler models them
PENALTY = 1.0  # on the logarithm of the ratio, for candidates whose results differ
SURE = 1.0  # standard errors by which two gains have to differ
CLEAR = 2.0  # standard errors from which a difference is not chance
PAIRS = 3  # measurements from which a result is not taken for luck
PAYS = 0.01  # share of the step time from which a setting is worth combining
MISSING = "fathom tune needs Optuna; install it with `pip install 'fathom-perf[tune]'`."
Choice = dict[str, str]  # the value's name by knob; knobs that stay as they are have no entry


@dataclass
class Measured:
    """All that is known of one choice: the logarithms of its ratios to the program as it is."""

    choice: Choice
    logs: list[float] = field(default_factory=list)
    status: str = "done"
    why: str = ""
    seconds: float = 0.0  # of its longest run
    last_s: float = 0.0  # seconds of its latest run
    within: bool = False  # the ratios are of blocks of a run that switched it on and off

    @property
    def log(self) -> float:
        """The median logarithm of its ratios; infinite if it cannot be used."""
        return median(self.logs) if self.status == "done" and self.logs else math.inf

    @property
    def gain(self) -> float | None:
        """The share of the step time that it saved; None if it was not timed."""
        return 1 - math.exp(median(self.logs)) if self.logs else None

    def weight(self, error: float) -> float:
        """Return how many ratios of separate runs, with this standard error, are as informative as these."""
        count = len(self.logs)
        if not self.within or count < PAIRS:
            return count
        return max(count, count * (error / max(stdev(self.logs), LEAST_ERROR)) ** 2)


class Search:
    """Proposes choices and remembers their results, in the journal at `path` if it is given."""

    def __init__(
        self, knobs: Sequence[Knob], known: dict[str, Prior], path: Path | None, seed: int = 0
    ) -> None:
        self._optuna = require_optuna()
        self.knobs, self.known = {knob.id: knob for knob in knobs}, known
        self.measured: dict[str, Measured] = {}
        self._space = self._distributions()
        self._study = self._opened(path, seed)
        self._resume()

    def _opened(self, path: Path | None, seed: int) -> optuna.Study:
        samplers, storages = self._optuna.samplers, self._optuna.storages
        journal = storages.journal.JournalFileBackend(str(path)) if path else None
        sampler = samplers.TPESampler(multivariate=True, n_startup_trials=STARTUP, seed=seed)
        return self._optuna.create_study(
            study_name=f"tune-{zlib.crc32(repr(self._space).encode()):08x}",  # other knobs, other study
            storage=storages.JournalStorage(journal) if journal else None,
            sampler=sampler,
            load_if_exists=True,
        )

    def _distributions(self) -> dict[str, Any]:
        categorical = self._optuna.distributions.CategoricalDistribution
        return {
            knob.id: categorical([AS_IT_IS, *(value.name for value in knob.values)])
            for knob in self.knobs.values()
        }

    def _resume(self) -> None:
        """Read the results of an earlier search; enqueue the single settings in a new one."""
        state, left = self._optuna.trial.TrialState, dict[str, Any]()
        for trial in self._study.trials:
            if trial.state == state.COMPLETE:
                self._note(_choice(trial.params), trial.user_attrs)
            elif trial.state == state.RUNNING:  # its search was killed, or left it for a longer budget
                self._study.tell(trial.number, state=state.FAIL)
                left[key(_choice(trial.params))] = trial.params
        for name, params in left.items():
            if name not in self.measured:
                self._study.enqueue_trial(params)
        if not self._study.trials:
            for knob, value in in_order(self.knobs.values(), self.known):
                self.enqueue({knob.id: value.name})

    def enqueue(self, choice: Choice) -> None:
        """Try this choice next, after others that were enqueued before."""
        everything = dict.fromkeys(self.knobs, AS_IT_IS) | choice
        self._study.enqueue_trial(everything, skip_if_exists=True)

    def ask(self) -> tuple[Any, Choice]:
        """Return the next trial and its choice."""
        trial = self._study.ask(self._space)
        return trial, _choice(trial.params)

    def tell(self, trial: Any, choice: Choice, result: Measured) -> None:
        """Keep the result of a choice."""
        about = _about(result)
        for name, value in about.items():
            trial.set_user_attr(name, value)
        self._note(choice, about)
        self._study.tell(trial, _value(result))

    def add(self, result: Measured) -> None:
        """Keep the result of a choice that was not asked for."""
        about = _about(result)
        self._note(result.choice, about)
        params = dict.fromkeys(self.knobs, AS_IT_IS) | result.choice
        trial = self._optuna.trial.create_trial(
            params=params, distributions=self._space, value=_value(result), user_attrs=about
        )
        self._study.add_trial(trial)

    def _note(self, choice: Choice, about: dict[str, Any]) -> None:
        known = self.measured.setdefault(key(choice), Measured(choice))
        known.within = about.get("within", False) and (known.within or not known.logs)
        known.logs += about.get("logs", [])
        known.seconds = max(known.seconds, about.get("seconds", 0.0))
        known.last_s = about.get("last_s", known.seconds)
        if about.get("status", "done") != "done":
            known.status, known.why = about["status"], about.get("why", "")

    def untried(self) -> list[Choice]:
        """Return the single settings that were not measured yet."""
        singles = [{knob.id: value.name} for knob in self.knobs.values() for value in knob.values]
        return [single for single in singles if key(single) not in self.measured]

    def hope(self, least: float) -> Choice:
        """Return the untried setting with the largest predicted gain; empty if none predicts `least`.

        Knobs of which a value was timed are left out: their other values gain what this one leaves.
        """
        timed = {knob for known in self.measured.values() if known.logs for knob in known.choice}
        rows = [single for single in self.untried() if not timed & single.keys()]
        shares = [predicted(single, self.known) or 0.0 for single in rows]
        return rows[shares.index(max(shares))] if max(shares, default=0.0) >= least else {}

    def combine(self, error: float) -> None:
        """Enqueue the best value of each knob that paid: the two best, then one more at a time."""
        paid: dict[str, list[Measured]] = {}
        for result in self.ranked():
            if len(result.choice) == 1 and result.log < math.log(1 - PAYS):
                paid.setdefault(next(iter(result.choice)), []).append(result)
        best = [
            next(r for r in self._listed(knob, results) if self._near(r, results[0], error))
            for knob, results in paid.items()
        ]
        combined: Choice = {}
        for result in sorted(best, key=lambda known: known.log):
            combined = combined | result.choice
            if len(combined) > 1:
                self.enqueue(combined)

    def effects(self, error: float) -> dict[Name, Effect]:
        """Return the effect of each setting by all measurements; `error` is that of one ratio."""
        usable = [known for known in self.measured.values() if known.status == "done" and known.logs]
        return effects([(known.choice, known.log, known.weight(error)) for known in usable], error)

    def proposed(self, error: float) -> Choice:
        """Return the settings that pay by all measurements, of each knob the first value that may be best.

        `error` is the standard error of one ratio.
        """
        every = self.effects(error)
        choice: Choice = {}
        for knob in self.knobs.values():
            mine = {v.name: every[knob.id, v.name] for v in knob.values if (knob.id, v.name) in every}
            paying = {name: e for name, e in mine.items() if e.log < -max(e.error, -math.log(1 - PAYS))}
            if paying:
                best = min(paying.values(), key=lambda effect: effect.log)
                near = (n for n, e in paying.items() if e.log - best.log <= SURE * difference(e, best))
                choice[knob.id] = next(near)
        return choice

    def ranked(self) -> list[Measured]:
        """Return the usable choices, the fastest first; the program as it is has the ratio 1."""
        usable = [result for result in self.measured.values() if result.choice and result.log < 0]
        return sorted(usable, key=lambda known: known.log)

    def _listed(self, knob: str, results: list[Measured]) -> list[Measured]:
        """Return results of single settings in the order in which their knob lists its values."""
        names = [value.name for value in self.knobs[knob].values]
        return sorted(results, key=lambda known: names.index(known.choice[knob]))

    def finalists(self, proposal: Choice, margin: float, error: float) -> list[Measured]:
        """Return the choices to prove that gain `margin`, the best first.

        The proposal comes first if it may be as fast as the fastest, so that searches agree: it rests on all
        measurements, and the fastest of many owes its place to chance, too. Choices with fewer than PAIRS
        measurements come last.
        """
        ranked = [known for known in self.ranked() if (known.gain or 0) >= margin]
        sure = [known for known in ranked if len(known.logs) >= PAIRS]
        others = [known for known in ranked if len(known.logs) < PAIRS]
        best = (sure or others)[:1]

        def comes_first(known: Measured) -> bool:
            return known.choice == proposal and self._near(known, best[0], error)

        return sorted([*sure, *others], key=lambda known: not comes_first(known))

    def _near(self, known: Measured, best: Measured, error: float, sure: float = SURE) -> bool:
        runs = 1 / known.weight(error) + 1 / best.weight(error)
        return known.log - best.log <= sure * error * math.sqrt(runs)

    def may_lead(self, result: Measured, error: float) -> bool:
        """Return whether a result may be the fastest of all choices of the same knobs."""
        rivals = (known for known in self.ranked() if known.choice.keys() == result.choice.keys())
        best = next(rivals, None)
        return best is None or self._near(result, best, error, CLEAR)

    def contenders(self, proposal: Choice, count: int, least: int) -> list[Measured]:
        """Return the proposal and the best choices, `count` in all, that have fewer than `least` pairs."""
        first = [self.measured.get(key(proposal), Measured(proposal))] if proposal else []
        usable = [known for known in first if known.status == "done"]
        rows = [*usable, *(known for known in self.ranked() if known.choice != proposal)][:count]
        return [result for result in rows if len(result.logs) < least]

    def values(self, choice: Choice) -> Iterator[tuple[Knob, Value]]:
        """Yield the knobs of a choice with their values."""
        for knob_id, name in choice.items():
            knob = self.knobs[knob_id]
            yield knob, next(value for value in knob.values if value.name == name)

    def setting(self, choice: Choice) -> Applied:
        return merged([applied(value) for _, value in self.values(choice)])

    def running(self, choice: Choice) -> Applied:
        """Return the setting as far as it can be put in place while the program runs."""
        return merged([applied(value, running=True) for _, value in self.values(choice)])

    def work(self, choice: Choice) -> float:
        """Return the work of a step under this choice, relative to the program as it is."""
        return math.prod(value.work for _, value in self.values(choice))

    def patience_s(self, choice: Choice) -> float:
        """Return the extra seconds that a run of this choice may take."""
        return sum(knob.patience_s for knob, _ in self.values(choice))

    def tried(self) -> list[Tried]:
        """Return all candidates, the fastest first."""
        rows = [self.row_of(known) for known in self.measured.values() if known.choice]
        return sorted(rows, key=lambda row: (row.status != "done", -(row.gain or -math.inf)))

    def row_of(self, of: Measured) -> Tried:
        """Return a candidate with the gain that its settings' priors predict."""
        share = predicted(of.choice, self.known)
        return Tried(of.choice, of.status, of.gain, share, len(of.logs), of.why, of.seconds)


def _about(result: Measured) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("logs", "status", "why", "seconds", "last_s", "within")}


def _value(result: Measured) -> float:
    """Return the value that the sampler minimises."""
    log = median(result.logs) if result.logs else 0.0
    return log if result.status == "done" else max(log, 0.0) + PENALTY


def applied(value: Value, running: bool = False) -> Applied:
    """Return a value as settings of a run, or for a program that is `running`."""
    if running and value.running:
        return Applied(acts={**value.acts, **value.running}, arguments=value.arguments)
    return Applied(environment=value.environment, acts=value.acts, arguments=value.arguments)


def key(choice: Choice) -> str:
    """Return a text that is equal for equal choices."""
    return ", ".join(f"{knob}={choice[knob]}" for knob in sorted(choice))


def _choice(params: dict[str, Any]) -> Choice:
    return {knob: value for knob, value in params.items() if value != AS_IT_IS}


def require_optuna() -> Any:
    """Return the module optuna. Raises FathomError if it is not installed."""
    try:
        import optuna
    except ImportError:
        raise FathomError(MISSING) from None
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
