"""One recording as a comparison reads it: the step, its entries in each step, and facts that explain them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import polars as pl

from fathom.analysis.account import Account
from fathom.analysis.compare.launched import Launched, launched_by
from fathom.analysis.entries import Entry
from fathom.analysis.others import readings
from fathom.analysis.results import Device, Examination, LedgerRow, Utilisation
from fathom.analysis.rows import RowKey, rounded_ns
from fathom.errors import BadInputError
from fathom.machine.model import Machine
from fathom.sounding import Facts, Store
from fathom.units import NS_PER_MS

LONGER = "rare long steps"


class RunEntry(msgspec.Struct):
    """An entry's time in the step in whole ns, and in each recorded step (`each`, unscaled).

    `adjusted_ns` is the profiling overhead that was subtracted from it.
    """

    entry: str
    detail: str
    ns: int
    each: list[int]
    adjusted_ns: float = 0.0
    count: float | None = None
    launched: Launched = Launched()


class Counter(msgspec.Struct):
    """A hardware counter of a kernel family."""

    family: str
    counter: str
    value: float
    unit: str
    error: float


class Run(msgspec.Struct):
    """A recording. The ledgers are those of the basis: they sum to its step in whole ns."""

    name: str
    command: list[str]
    kind: str
    device: str
    clean_ms: list[float]  # each clean step, or the mean of several between device boundaries
    clean_steps: int  # all steps of clean_ms
    windows_ms: list[float]  # each recorded step
    entries: dict[str, list[RunEntry]]  # by basis
    uneven: bool
    examination: Examination
    versions: dict[str, str]
    environment: dict[str, str]
    machine: Machine
    facts: Facts
    clocks_mhz: list[float]  # of the device while it ran steps
    counters: list[Counter]
    others: float = 0.0  # share of the host's processors that other programs used during the steps
    utilisation: Utilisation | None = None

    def step_ns(self, basis: str) -> int:
        """Return the step's length on a basis."""
        return sum(row.ns for row in self.entries[basis])

    def mean_ns(self, basis: str) -> int:
        """Return the mean of the steps that a basis is about."""
        return self.step_ns(MEAN if basis == CLEAN and MEAN in self.entries else basis)


CLEAN, MEAN, PROFILED = "clean median", "clean mean", "profiled mean"


def run_of(
    store: Store, examination: Examination, account: Account, counters: pl.DataFrame | None = None
) -> Run:
    """Return the first device of an account as a run. Raises BadInputError without a ledger."""
    if not account.devices or not account.devices[0].ledger:
        why = next((a.why for a in account.abstained if a.what == "ledger"), "no step was recorded")
        raise BadInputError(
            f"{store.source} has no ledger of rank {account.rank}: {why}. Record it again, with more steps."
        )
    device, manifest = account.devices[0], store.manifest
    first = next((rank for rank in manifest.ranks if rank.rank == account.rank), None)
    durations = [duration for run in account.stretches for duration in run.durations()]
    return Run(
        name=str(store.source),
        command=manifest.command,
        kind=account.kind,
        device=device.device,
        clean_ms=[ns / NS_PER_MS for ns, _ in durations],
        clean_steps=sum(steps for _, steps in durations),
        windows_ms=[(w.end_ns - w.start_ns) / NS_PER_MS for w in device.windows if w.used],
        entries=_entries(account, device, launched_by(store, account)),
        uneven=bool(account.clean and account.clean.uneven),
        examination=examination,
        versions=manifest.versions,
        environment=manifest.environment,
        machine=store.machine,
        facts=first.facts if first else {},
        clocks_mhz=_clocks(store, account),
        counters=_counters(counters, account),
        others=account.others(store)[0],
        utilisation=device.utilisation,
    )


def _entries(
    account: Account, device: Device, launched: Mapping[RowKey, Launched]
) -> dict[str, list[RunEntry]]:
    """Return the ledger by basis: of the median and the mean clean step, and of the profiled steps."""
    each = _each(account)
    profiled = {(row.entry, row.detail): row.ms for row in device.profiled_ledger}
    rows = {PROFILED: device.profiled_ledger}
    if account.clean is not None:
        rows[CLEAN] = device.ledger
        rows[MEAN] = device.mean_ledger or _with_long_steps(device.ledger, account.clean.mean_ms)
    result = {}
    for basis, ledger in rows.items():
        total = round(sum(row.ms for row in ledger) * NS_PER_MS)
        ns = rounded_ns([row.ms for row in ledger], total)
        result[basis] = [
            _entry(row, amount, each, profiled, launched) for row, amount in zip(ledger, ns, strict=True)
        ]
    return result


def _with_long_steps(ledger: list[LedgerRow], mean_ms: float) -> list[LedgerRow]:
    """Return the ledger of the median step with the rest of the mean step as a row."""
    rest = mean_ms - sum(row.ms for row in ledger)
    return [*ledger, LedgerRow(Entry.UNATTRIBUTED, LONGER, rest, inferred=True)]


def _entry(
    row: LedgerRow,
    ns: int,
    each: Mapping[RowKey, list[int]],
    profiled: Mapping[RowKey, float],
    launched: Mapping[RowKey, Launched],
) -> RunEntry:
    key = row.entry, row.detail
    adjusted = abs(profiled.get(key, row.ms) - row.ms) * NS_PER_MS if row.inferred else 0.0
    return RunEntry(
        str(row.entry), row.detail, ns, each.get(key, []), adjusted, row.count, launched.get(key, Launched())
    )


def _each(account: Account) -> dict[RowKey, list[int]]:
    """Return the ns of each entry in each used window; 0 where a window lacks it."""
    ledger = account.subjects[0].ledger
    used = ledger.windows.used.nonzero()[0].tolist()
    place = {window: index for index, window in enumerate(used)}
    result: dict[RowKey, list[int]] = {}
    for window, entry, detail, ns in ledger.rows.select("window", "entry", "detail", "ns").iter_rows():
        if window in place:
            result.setdefault((entry, detail), [0] * len(used))[place[window]] += ns
    return result


def _clocks(store: Store, account: Account) -> list[float]:
    """Return the device's clock in MHz at each sample while its steps ran."""
    index = account.subjects[0].index
    if index is None:
        return []
    rows = readings(store, account.rank, index, account.steps).drop_nulls("sm_clock_mhz")
    return rows["sm_clock_mhz"].cast(pl.Float64).to_list()


def _counters(table: pl.DataFrame | None, account: Account) -> list[Counter]:
    index = account.subjects[0].index
    if table is None or index is None:
        return []
    rows = table.filter(pl.col("rank") == account.rank, pl.col("device") == index).drop_nulls("value")
    columns = pl.col("unit").fill_null(""), pl.col("error").fill_null(0.0)
    return [Counter(*row) for row in rows.select("family", "counter", "value", *columns).iter_rows()]
