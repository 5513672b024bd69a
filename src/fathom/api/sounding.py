"""Soundings: open one, analyse it, compare several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fathom.api.tables import Tables

if TYPE_CHECKING:
    from fathom.analysis import Spread
    from fathom.analysis.compare import Run, SoundingComparison
    from fathom.analysis.folding import Excerpt
    from fathom.analysis.measures import Portrait
    from fathom.analysis.replay import Prediction, Replay
    from fathom.analysis.results import Examination, Finding, Step
    from fathom.machine.model import Machine
    from fathom.planner.training import RecordedJob
    from fathom.report import Recording
    from fathom.sounding import Manifest, Store
    from fathom.tips import Scores

T = TypeVar("T")


class Sounding(Tables):
    """A recording: its tables, and the analysis of its steps, which is computed once and on demand.

        sounding = fathom.open("train.fathom")
        print(sounding.step.clean_ms, sounding.findings[0].title)
        sounding.ledger.group_by("entry").agg(pl.col("ms").sum())

    In a notebook it shows its verdict, ledger and largest findings.
    """

    def __init__(self, store: Store, machine: Path | None = None) -> None:
        self.store = store
        self._machine = machine
        self.spread: Spread | None = (
            None  # where the ranks of a large job are analysed; None: on this machine
        )
        self._replays: dict[tuple[int | None, tuple[int, ...], bool], Replay] = {}
        self._portraits: dict[int | None, list[Portrait]] = {}

    @property
    def path(self) -> Path:
        """The sounding's directory; for a packed sounding, the temporary directory it was unpacked into."""
        return self.store.path

    @property
    def manifest(self) -> Manifest:
        """Command, ranks, phases, versions, problems."""
        return self.store.manifest

    def examine(self, kind: str | None = None, price: str | None = None) -> Examination:
        """Return everything that `fathom report` prints: integrity, verdict, account, ledgers, findings.

        `kind` selects the kind of steps by its name or by its position in `kinds`, counted from 1. The
        default is the kind that takes the most time. `price` is the price of one GPU, like "3.50/h" or "3
        EUR/h"; the default is the price in `fathom.toml`. Raises BadInputError for a kind that was not
        recorded and for an invalid price.
        """
        from fathom.analysis import priced
        from fathom.machine import configured_price, parse_price

        known = configured_price() if price is None else parse_price(price)
        result = self._examination if kind is None else self._examined(kind)
        return result if known is None else priced(result, known)

    @cached_property
    def _examination(self) -> Examination:
        return self._examined(None)

    def _examined(self, kind: str | None) -> Examination:
        from fathom.analysis.results import Examination

        def compute(machine: Machine) -> Examination:
            from fathom.diagnosis import examine

            return examine(self.store, machine, kind, self.spread)

        return self._cached("examination", kind, Examination, compute)

    def _analysed(self) -> Store:
        """Return the store whose timeline represents the clean steps."""
        from fathom.analysis import representative

        return representative(self.store.cached())[0]

    def _cached(self, what: str, of: str | int | None, type: type[T], compute: Callable[[Machine], T]) -> T:
        """Return `compute(machine)`, from the cache if possible; `machine` has the ceilings that apply.

        Results are cached only if the tables have checksums, and a cached result is returned only if the
        tables still match them.
        """
        import msgspec

        from fathom import cache
        from fathom.errors import FathomError
        from fathom.machine import bounding

        machine = bounding(self.store.machine, self._machine)
        if not self.manifest.checksums or not cache.is_on():
            return compute(machine)
        key = cache.key(what, msgspec.json.encode(self.manifest), msgspec.json.encode(machine), of)
        if kept := cache.read(key):
            with contextlib.suppress(FathomError, msgspec.DecodeError):
                self.store.verify()
                return msgspec.json.decode(kept, type=type)
        result = compute(machine)
        cache.write(key, msgspec.json.encode(result))
        return result

    @property
    def step(self) -> Step:
        """The repeating step: `clean_ms` with its interval `ci_ms`, `timeline_ms` as profiled, rates, `n`."""
        return self.examine().step

    @property
    def findings(self) -> list[Finding]:
        """Causes of lost time, largest predicted gain first: `id`, `title`, `gain_ms`, `remedy` …"""
        return self.examine().findings

    def tips(self, price: str | None = None, areas: Sequence[str] = ()) -> Scores:
        """Score the performance checklist for the recorded program and its machine: `counts`, `tips`.

        Broken tips come first, the costliest at the top. `price` is as in `examine`; `areas` are as in
        `fathom tips --area`, by default all. Raises BadInputError for an unknown area.
        """
        from fathom.machine.checks import recalled
        from fathom.tips import chosen, of_sounding, score

        which = chosen(areas)
        machine = self.store.machine
        return score(of_sounding(self.examine(price=price), machine, recalled(machine)), which)

    def kernel(self, pattern: str | None = None, rank: int | None = None) -> list[Portrait]:
        """Return kernel families, the longest first: `ms` per step, launches, counters, measures, limits.

        `pattern` is a family's name, a part of it, a pattern with * and ?, or a regular expression; None
        selects all. `rank` defaults to the first rank with a timeline. Raises BadInputError if the pattern
        matches no family, or if no kernels were recorded.
        """
        from fathom.report import matching

        if rank not in self._portraits:
            self._portraits[rank] = self._portrayed(rank)
        return matching(self._portraits[rank], pattern)

    def samples(self, pattern: str | None = None, rank: int | None = None) -> tuple[Excerpt, Portrait]:
        """Return the counter samples around one launch of the first family that matches, and that family.

        `pattern` and `rank` are as in `kernel`. Raises BadInputError as `kernel` does, and if no samples
        cover the family.
        """
        from fathom.analysis.folding import counters_of, excerpt_around
        from fathom.errors import BadInputError

        for portrait in self.kernel(pattern, rank)[:1]:
            folding = counters_of(self.store, portrait.rank)
            excerpt = excerpt_around(self.store, portrait.rank, portrait.device, portrait.family, folding)
            if excerpt is not None:
                return excerpt, portrait
        raise BadInputError(
            "No counter samples cover this kernel; record with `fathom run --depth counters`."
        )

    def _portrayed(self, rank: int | None) -> list[Portrait]:
        from fathom.analysis.measures import Portrait

        def compute(machine: Machine) -> list[Portrait]:
            from fathom.analysis.measures import portraits_of

            self.store.verify()
            return portraits_of(self._analysed(), machine, rank)

        return self._cached("kernels", rank, list[Portrait], compute)

    def what_if(self, *changes: str, rank: int | None = None) -> Prediction:
        """Predict the step with changed durations, like `what_if("family:softmax=0.5", "input=0")`.

        Replays the recorded dependencies of one rank. By default it is the first, and for changes of waits
        for peers the one that waits longest. All times are in milliseconds.
        Raises BadInputError for invalid changes, and for a rank that was not recorded.
        """
        from fathom.analysis.replay import parse

        wanted = [parse(change) for change in changes]
        late = tuple(int(change.pattern) for change in wanted if change.selector == "late")
        waits = any(change.selector in ("late", "waiting") for change in wanted)
        if (rank, late, waits) not in self._replays:
            self._replays[rank, late, waits] = self._replay(rank, late, waits)
        return self._replays[rank, late, waits].predict(wanted)

    def on_more(self, gpus: int, on: str | None = None, **options: Any) -> RecordedJob:
        """Return the job of this program on `gpus` GPUs of another machine, for `plan_recorded`.

        `on` is a system or a machine file; the recorded machine by default. `options` are `batch`, `tokens`,
        `memory`, `sharding`, `shard`, `price`, `assume`, and figures of loading and checkpoints,
        as in `fathom plan train`. Raises BadInputError.
        """
        from functools import cache

        from fathom.planner.training import Recording, recorded_job

        def predict(changes: tuple[str, ...]) -> float | None:
            prediction = self.what_if(*changes)
            after = prediction.clean_predicted_ms or prediction.predicted_ms
            before = prediction.clean_ms if prediction.clean_predicted_ms else prediction.recorded_ms
            return after / before if after and before else None

        name = self.examine().sounding.name or self.path.name
        recording = Recording(name, self.examine(), self.store.machine, cache(predict))
        return recorded_job(recording, gpus, on, **options)

    def _replay(self, rank: int | None, late: tuple[int, ...], waits: bool) -> Replay:
        """Return the replay of a rank, calibrated to the clean step of the report.

        Of a large job, it includes the ranks `late`. With `waits`, the default is the rank that waits longest
        for its peers.
        """
        from fathom.analysis import account_of, meetings
        from fathom.analysis import label as label_of
        from fathom.analysis.communication import late_ranks, longest_waiting
        from fathom.analysis.replay import Replay

        store = self._analysed()
        met = meetings(store)
        if rank is None and waits:
            rank = longest_waiting(met.arrivals, late)
        others = [*late, *(other.rank for other in late_ranks(met.arrivals))]
        result = Replay(store, rank, met=met, late=[other for other in others if other in store.ranks])
        if result.device is None:
            return result
        mine = account_of(store, result.device.rank, {}, met.of.get(result.device.rank))
        own = (subject for subject in mine.subjects if subject.index == result.device.index)
        result.collectives = next((subject.collectives for subject in own), None)
        labels = (device for device in mine.devices if device.device == label_of(result.device.index))
        device = next(labels, None)
        return result if device is None else result.calibrate(mine.clean, device.mean_ledger or device.ledger)

    def compare(
        self,
        other: Sounding | str | Path,
        kind: str | None = None,
        rank: int | None = None,
        margin: float = 0.01,
    ) -> SoundingComparison:
        """Compare `other` with this sounding: the step's change, and the entries that add up to it.

        The arguments are those of `fathom.compare`, which also compares several recordings of each side.
        """
        return compare([self], [other], kind, rank, margin)

    def run(self, kind: str | None = None, rank: int | None = None) -> Run:
        """Return this recording as a comparison reads it. Raises BadInputError without a ledger."""
        from fathom.analysis.compare import Run
        from fathom.errors import BadInputError

        ranks = self.store.ranks
        if not ranks or (rank is not None and rank not in ranks):
            raise BadInputError(
                f"{self.store.source} has no rank {rank}; use one of: {', '.join(map(str, ranks)) or 'none'}."
            )
        chosen = ranks[0] if rank is None else rank
        run = self._cached(
            "run", f"{kind} {chosen}", Run, lambda machine: self._as_run(kind, chosen, machine)
        )
        run.name = str(self.store.source)
        return run

    def _as_run(self, kind: str | None, rank: int, machine: Machine) -> Run:
        from fathom.analysis import account_of, meetings
        from fathom.analysis.compare import run_of

        examination = self.examine(kind)
        store = self._analysed()
        name = kind and next(row.name for row in examination.kinds if row.used)
        account = account_of(store, rank, machine, meetings(store).of.get(rank), name)
        counted = self.table("counters").collect() if examination.sounding.counters else None
        return run_of(store, examination, account, counted)

    def recording(self, examination: Examination | None = None) -> Recording:
        """Return what `fathom report --html` shows: the examination, kernels, and tables."""
        from fathom.errors import FathomError
        from fathom.machine import bounding
        from fathom.report import Recording

        result = self.examine() if examination is None else examination
        rank = next((device.rank for device in result.devices if device.ledger), None)
        portraits: list[Portrait] = []
        with contextlib.suppress(FathomError):  # without kernels there are none
            portraits = self.kernel(rank=rank)
        return Recording(result, portraits, self._analysed(), bounding(self.store.machine, self._machine))

    def export(self, to: str, target: str | Path) -> str:
        """Write this sounding in the format `to` of another tool, and return the path or address.

        - `perfetto`: a file for ui.perfetto.dev, with counters, ledger and findings as tracks
        - `parquet`, `csv`: a file per table in the folder `target`, with the ledger and the windows
        - `otel`: steps and findings as OpenTelemetry's spans, in a file of JSON or at a collector's address

        Raises BadInputError if a package is missing, or if writing or sending fails.
        """
        from fathom.analysis import window_entries
        from fathom.errors import BadInputError
        from fathom.report import Exported, save_perfetto, save_spans, save_tables

        if to in ("parquet", "csv"):
            results = {"ledger": self.ledger, "windows": self.windows}
            save_tables(self.store, Path(target), to, results)
            return str(target)
        if to not in ("perfetto", "otel"):
            raise BadInputError(f"There is no format '{to}'; use perfetto, parquet, csv or otel.")
        store = self._analysed()
        content = Exported(store, self.examine())
        if to == "perfetto":
            save_perfetto(content, window_entries(store), Path(target))
        else:
            save_spans(content, str(target))
        return str(target)

    def __repr__(self) -> str:
        count = len(self.store.ranks)
        ranks = "1 rank" if count == 1 else f"{count} ranks"
        return f"<Sounding {self.store.source}: {ranks}, {self.manifest.ended}>"

    def _repr_html_(self) -> str:
        from fathom.report import to_html

        return to_html(self.examine())


def open(path: str | Path, machine: str | Path | None = None) -> Sounding:
    """Open a sounding: a directory `NAME.fathom`, or the file that `fathom pack` made of it.

    The ceilings come from the machine file `machine` if it is given, else from the sounding, else from this
    computer's store for the recorded machine. Raises NotASoundingError if the path contains no sounding that
    this version can read.
    """
    from fathom.sounding import open_store

    return Sounding(open_store(path), None if machine is None else Path(machine))


def compare(
    baseline: Sequence[Sounding | str | Path],
    candidate: Sequence[Sounding | str | Path],
    kind: str | None = None,
    rank: int | None = None,
    margin: float = 0.01,
) -> SoundingComparison:
    """Compare recordings of a candidate with those of a baseline.

    `kind` and `rank` choose the steps, by default those with the most time on the first rank. `margin` is the
    largest difference that counts as the same. With two or more recordings of each side, the variation
    between runs is measured; otherwise it is assumed. Raises BadInputError if a side has no recording, if a
    recording has no ledger, or if the steps are of different kinds.
    """
    from fathom.analysis.compare import compare as compare_runs
    from fathom.errors import BadInputError

    if not baseline or not candidate:
        raise BadInputError("A comparison needs a baseline and a candidate; give a sounding for each.")
    before, after = ([_opened(path).run(kind, rank) for path in side] for side in (baseline, candidate))
    return compare_runs(before, after, margin)


def _opened(sounding: Sounding | str | Path) -> Sounding:
    return sounding if isinstance(sounding, Sounding) else open(sounding)
