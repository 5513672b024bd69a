"""The names of `import fathom`: `record` a stretch of this program, `open` a sounding."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from fathom.analysis.folding import Stretch
    from fathom.analysis.measures import Portrait
    from fathom.analysis.replay import Prediction, Replay
    from fathom.analysis.results import Examination, Finding, Step
    from fathom.recorder import SelfRecording
    from fathom.sounding import Manifest, Store
    from fathom.tips import Scores

NO_SAMPLES = "No counter samples cover this kernel; record with `fathom run --depth counters`."
_DERIVED = ("windows", "ledger", "profiled_ledger")


class Sounding:
    """One recording: its tables, and what Fathom has to say about it."""

    def __init__(self, store: Store, machine: Path | None = None) -> None:
        self.store = store
        self._machine = machine
        self._replays: dict[int | None, Replay] = {}
        self._portraits: dict[int | None, list[Portrait]] = {}

    @property
    def path(self) -> Path:
        """The sounding's directory."""
        return self.store.path

    @property
    def manifest(self) -> Manifest:
        """Command, ranks, phases, versions, problems."""
        return self.store.manifest

    def examine(self, kind: str | None = None, price: str | None = None) -> Examination:
        """Integrity, verdict, account, ledger, findings: all that `fathom report` prints. Computed once.

        `kind` asks for another kind of steps than the one that takes the most time: its name, or its number
        among `kinds`, from 1. `price` is what a GPU costs, like "3.50/h" or "3 EUR/h", else that of
        `fathom.toml`. Raises BadInputError for a kind that was not recorded, and for what is no price.
        """
        from fathom.analysis.cost import priced
        from fathom.machine import configured_price, parse_price

        known = configured_price() if price is None else parse_price(price)
        result = self._examination if kind is None else self._examined(kind)
        return result if known is None else priced(result, known)

    @cached_property
    def _examination(self) -> Examination:
        return self._examined(None)

    def _examined(self, kind: str | None) -> Examination:
        import msgspec

        from fathom import cache
        from fathom.analysis.results import Examination
        from fathom.errors import FathomError
        from fathom.machine import bounding

        machine = bounding(self.store.machine, self._machine)
        key = self._key("examination", machine, kind)
        if key and (kept := cache.read(key)):
            with contextlib.suppress(FathomError, msgspec.DecodeError):
                self.store.verify()
                return msgspec.json.decode(kept, type=Examination)
        from fathom.diagnosis import examine

        result = examine(self.store, machine, kind)
        if key:
            cache.write(key, msgspec.json.encode(result))
        return result

    def _key(self, what: str, machine: dict[str, Any], of: str | int | None) -> str | None:
        """The key of a cached result; None without a cache, or checksums of the tables."""
        import msgspec

        from fathom import cache

        if not self.manifest.checksums or not cache.is_on():
            return None
        return cache.key(what, msgspec.json.encode(self.manifest), msgspec.json.encode(machine), of)

    @property
    def step(self) -> Step:
        """The repeating step: milliseconds, interval, how many."""
        return self.examine().step

    @property
    def ledger(self) -> pl.DataFrame:
        """One row an entry and device, of the clean step: `rank`, `device`, `entry`, `detail`, `ms` …

        Without a clean step, as in imported traces, the same as `profiled_ledger`.
        """
        return _rows(self.examine(), "ledger")

    @property
    def profiled_ledger(self) -> pl.DataFrame:
        """Like `ledger`, of the profiled steps, profiling overhead included."""
        return _rows(self.examine(), "profiled_ledger")

    @property
    def windows(self) -> pl.DataFrame:
        """One row a step's window and device: `rank`, `device`, `start_ns`, `end_ns`, `kind`, `used` …"""
        return _rows(self.examine(), "windows")

    @property
    def findings(self) -> list[Finding]:
        """Named causes of loss."""
        return self.examine().findings

    def tips(self, price: str | None = None, areas: Sequence[str] = ()) -> Scores:
        """The performance checklist, scored on the recorded program and its machine: `counts`, `tips`.

        Broken tips come first, those that cost most of the program's time at the top. `price` is that of
        `examine`, `areas` are those of `fathom tips --area`, all of them by default. Raises BadInputError for
        an unknown area.
        """
        from fathom.machine.checks import recalled
        from fathom.tips import chosen, of_sounding, score

        which = chosen(areas)
        machine = self.store.machine
        return score(of_sounding(self.examine(price=price), machine, recalled(machine)), which)

    def kernel(self, pattern: str | None = None, rank: int | None = None) -> list[Portrait]:
        """The kernel families that `pattern` names, or all: time, launches, counters, measures, limits.

        Those with most time first. `pattern` is a name, a part of one, a pattern with * and ?, or a regular
        expression; `rank` by default the first with a timeline. Raises BadInputError where the pattern names
        no family, and where no kernels were recorded.
        """
        from fathom.report import matching

        if rank not in self._portraits:
            self._portraits[rank] = self._portrayed(rank)
        return matching(self._portraits[rank], pattern)

    def samples(self, pattern: str | None = None, rank: int | None = None) -> tuple[Stretch, Portrait]:
        """Counter samples around one launch of the first family that `pattern` names, and that family.

        `rank` as for `kernel`. Raises BadInputError like `kernel`, and if no samples cover the family.
        """
        from fathom.analysis.folding import counters_of, stretch_around
        from fathom.errors import BadInputError

        for portrait in self.kernel(pattern, rank)[:1]:
            folding = counters_of(self.store, portrait.rank)
            stretch = stretch_around(self.store, portrait.rank, portrait.device, portrait.family, folding)
            if stretch is not None:
                return stretch, portrait
        raise BadInputError(
            "No counter samples cover this kernel; record with `fathom run --depth counters`."
        )

    def _portrayed(self, rank: int | None) -> list[Portrait]:
        import msgspec

        from fathom import cache
        from fathom.analysis.measures.results import Portrait
        from fathom.machine import bounding

        machine = bounding(self.store.machine, self._machine)
        key = self._key("kernels", machine, rank)
        if key and (kept := cache.read(key)):
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(kept, type=list[Portrait])
        from fathom.analysis.measures import portraits_of

        result = portraits_of(self.store.verify(), machine, rank)
        if key:
            cache.write(key, msgspec.json.encode(result))
        return result

    def what_if(self, *changes: str, rank: int | None = None) -> Prediction:
        """The step with changed durations, like `what_if("family:softmax=0.5", "input=0")`.

        Raises BadInputError for changes that cannot be made, and for a rank that was not recorded.
        """
        from fathom.analysis.replay import parse

        wanted = [parse(change) for change in changes]
        if rank not in self._replays:
            self._replays[rank] = self._replay(rank)
        return self._replays[rank].predict(wanted)

    def _replay(self, rank: int | None) -> Replay:
        """The replay of a rank, on the clean step that the report is of."""
        from fathom.analysis import account, meetings
        from fathom.analysis.replay import Replay
        from fathom.analysis.subjects import label as label_of

        store = self.store.cached()
        result = Replay(store, rank)
        if result.seen is None:
            return result
        mine = account(store, result.seen.rank, {}, meetings(store).of.get(result.seen.rank))
        labels = (device for device in mine.devices if device.device == label_of(result.seen.index))
        device = next(labels, None)
        return result if device is None else result.calibrate(mine.clean, device.mean_ledger or device.ledger)

    def table(self, name: str) -> pl.LazyFrame:
        """A recorded table over all ranks, with a `rank` column. Raises BadInputError for an unknown one.

        `counters` has those of kernel families; a recording that keeps samples alone folds them now.
        """
        if name != "counters":
            return self.store.table(name)
        from fathom.analysis.folding import counters_table

        return counters_table(self.store).lazy()

    def sql(self, query: str) -> pl.DataFrame:
        """One SELECT over recorded tables, `windows`, `ledger`, `profiled_ledger`. Raises BadInputError."""
        from fathom.sounding import TABLES, select

        frames = {name: self.store.table(name) for name in TABLES}
        asked = {name for name in (*_DERIVED, "counters") if re.search(rf"\b{name}\b", query)}
        if "counters" in asked:
            frames["counters"] = self.table("counters")
        for name in asked.intersection(_DERIVED):  # examining takes a while: only for those who ask
            frames[name] = getattr(self, name).lazy()
        return select(frames, query, [name for name in _DERIVED if name not in frames])

    def __repr__(self) -> str:
        count = len(self.store.ranks)
        ranks = "1 rank" if count == 1 else f"{count} ranks"
        return f"<Sounding {self.store.source}: {ranks}, {self.manifest.ended}>"

    def _repr_html_(self) -> str:
        from fathom.report import to_html

        return to_html(self.examine())


def _rows(examination: Examination, what: str) -> pl.DataFrame:
    import msgspec
    import polars as pl

    from fathom.analysis.results import LedgerRow, Window

    rows = [
        {"rank": device.rank, "device": device.device, **msgspec.structs.asdict(row)}
        for device in examination.devices
        for row in getattr(device, what)
    ]
    kind = Window if what == "windows" else LedgerRow
    names = ["rank", "device", *kind.__struct_fields__]
    return pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame(schema=names)


def open(path: str | Path, machine: str | Path | None = None) -> Sounding:
    """Open a sounding: a directory `NAME.fathom`, or what `fathom pack` made of it.

    Its work is bounded by the ceilings of the file `machine`, else those recorded with it, else those that
    are remembered of its machine. Raises NotASoundingError where there is none that this version can read.
    """
    from fathom.sounding import open_store

    return Sounding(open_store(path), None if machine is None else Path(machine))


class record:  # noqa: N801 - used like a function
    """`with fathom.record("train.fathom") as recording:` records this program's steps until the block ends.

    Works in scripts and notebooks; under `fathom run`, which records already, it does nothing more.
    `depth`, `steps`, `settle`, `step_on`, `at`, `on_slow_step` and `what_if` mean what they mean there. An
    existing sounding is overwritten only with `replace=True`. Raises BadInputError for options that cannot
    be met, and with `depth="counters"` FathomError, on entering, where no hardware counters can be sampled.
    """

    def __init__(
        self,
        path: str | Path,
        depth: str = "auto",
        steps: int | None = None,
        *,
        settle: int | str = "auto",
        step_on: str = "auto",
        at: tuple[int, ...] = (),
        on_slow_step: bool = False,
        replace: bool = False,
        what_if: tuple[str, ...] = (),
    ) -> None:
        from fathom.recorder import Plan

        self.path = Path(path)
        self.sounding: Sounding | None = None
        self._plan = Plan(depth, steps, settle, step_on, tuple(at), on_slow_step, what_if=tuple(what_if))
        self._replace = replace
        self._session: SelfRecording | None = None

    def __enter__(self) -> record:
        from fathom.recorder import SelfRecording

        self._session = SelfRecording(self.path, self._plan, replace=self._replace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session is None:
            return
        store = self._session.end(kind)
        self.sounding = None if store is None else Sounding(store)
