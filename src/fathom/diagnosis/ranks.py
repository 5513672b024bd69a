"""The steps of one kind on all ranks of a sounding. Each part is read and computed once per examination."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from fathom import analysis
from fathom.analysis import Abstained, Account, Step
from fathom.analysis.communication import LateRank
from fathom.analysis.replay import Replay
from fathom.analysis.results import (
    CriticalPart,
    Device,
    Energy,
    Finding,
    Input,
    Lead,
    Memory,
    Part,
    Trial,
    Verdict,
)
from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.engine.leads import leads
from fathom.diagnosis.signals import Recorded, Signals
from fathom.diagnosis.verdict import conclude, limited_of
from fathom.machine import bounds_of
from fathom.machine.model import Machine
from fathom.sounding import Store
from fathom.timing import interval
from fathom.units import MS_PER_S, NS_PER_MS


class Diagnosis(msgspec.Struct):
    """Findings and leads of the first rank with a ledger, because all ranks do similar work.

    `limited` names the limit of each kernel family, from its counters.
    """

    findings: list[Finding]
    leads: list[Lead]
    abstained: list[Abstained]
    limited: dict[str, str]
    critical: list[CriticalPart] = []


class Ranks(msgspec.Struct, dict=True):
    """Steps of one kind: of `kind`, or by default of the kind with the most time.

    `meetings` maps each rank to the arrival times of peers at its collectives, and `late` lists the ranks
    that others waited for. Trials in the running program belong to the kind with the most time. So does
    memory, if another kind is examined `beside` it.
    """

    store: Store
    machine: Machine
    meetings: Mapping[int, pl.DataFrame]
    kind: str | None = None
    beside: bool = False
    late: tuple[LateRank, ...] = ()
    spread: analysis.Spread | None = None
    peers: analysis.Meetings | None = None

    def of(self, kind: str, beside: bool = False) -> Ranks:
        """Return the steps of another kind."""
        return Ranks(
            self.store, self.machine, self.meetings, kind, beside, self.late, self.spread, self.peers
        )

    @cached_property
    def accounts(self) -> list[Account]:
        """The account of each rank; of a large job beside another kind, only those up to the first device."""
        if self.beside and analysis.is_large(self.store):
            return analysis.first_accounts(self.store, self.machine, self.meetings, self.kind)
        return analysis.accounts_of(self.store, self.machine, self.meetings, self.kind, self.spread)

    @cached_property
    def devices(self) -> list[Device]:
        """The devices of all ranks."""
        return [device for account in self.accounts for device in account.devices]

    @cached_property
    def step(self) -> Step:
        """The lowest rank's step, with the throughput of all ranks, and the load by other programs."""
        step = step_of(self.accounts)
        timed = next((account for account in self.accounts if account.clean), None)
        if timed is not None:
            share, matters = timed.others(self.store)
            step.others = share if matters else None
        return step

    @cached_property
    def feeding(self) -> Input | None:
        """The data loading of the first rank that loads data, because all ranks load in the same way."""
        for account in self.accounts:
            within, steps = account.measured()
            batches = self.store.table("input", account.rank).collect()
            if feeding := analysis.input_of(account.input_waits, batches, within, steps):
                feeding.copy_ms = feeding.copy_ms if account.copy_ms is None else account.copy_ms
                return feeding
        return None

    @cached_property
    def memory(self) -> Memory | None:
        """The peak memory of the program."""
        if self.beside or not self.store.ranks:
            return None
        devices = sorted({index for account in self.accounts for index in account.indices})
        peaks = self._of_ranks("memory", pl.col("event") == "peak")
        used = self._of_ranks("telemetry", pl.col("memory_bytes").is_not_null())
        result = analysis.memory_of(peaks, used, devices)
        over_step = analysis.memory_over_step(self.store, self.store.ranks[0])
        if over_step is None:
            return result
        return msgspec.structs.replace(result or Memory(), step=analysis.at_peak(over_step))

    def _of_ranks(self, table: str, rows: pl.Expr) -> pl.DataFrame:
        """Return the chosen rows of a table of all ranks, one rank after the other."""
        return pl.concat([self.store.table(table, rank).filter(rows).collect() for rank in self.store.ranks])

    @cached_property
    def trials(self) -> tuple[list[Trial], list[Abstained]]:
        """The results of the first rank that ran trials, and the reasons for missing ones."""
        for account in self.accounts if self.kind is None else ():
            steps = self.store.table("steps", account.rank).collect()
            trials, abstained = analysis.trial_results(steps, account.kind)
            if trials or abstained:
                known = {absence["what"] for absence in self.store.manifest.abstained}
                return trials, [absence for absence in abstained if absence.what not in known]
        return [], []

    @cached_property
    def energy(self) -> tuple[Energy | None, list[Abstained]]:
        """Energy per step, sample and token, and the reasons if it is unknown."""
        if not any(account.clean for account in self.accounts):
            return None, []
        energy, abstained = analysis.energy_of([self._metered(account) for account in self.accounts])
        step = self.step
        if energy is not None and energy.per_step_j is not None and step.clean_mean_ms:
            watts = energy.per_step_j / step.clean_mean_ms * MS_PER_S
            energy.per_sample_j = watts / step.samples_per_s if step.samples_per_s else None
            energy.per_token_j = watts / step.tokens_per_s if step.tokens_per_s else None
        return energy, abstained

    def _metered(self, account: Account) -> analysis.Metered:
        return analysis.Metered(
            account.rank,
            self.store.table("telemetry", account.rank).collect(),
            account.stretches,
            account.indices,
            account.steps,
            account.kind,
            account.clean.mean_ms if account.clean else None,
        )

    @cached_property
    def signals(self) -> Signals | None:
        """The signals of the first rank with a ledger; None without ranks."""
        account = next((a for a in self.accounts if a.devices), self.accounts[0] if self.accounts else None)
        if account is None:
            return None
        tried = {trial.kind: trial for trial in self.trials[0]}
        recorded = Recorded(
            self.store, self.machine, account, self.step, self.feeding, self.memory, tried, self.kind
        )
        recorded.late, recorded.every = list(self.late), self.devices
        recorded.peers, recorded.accounts = self.peers, self.accounts
        return Signals(None, recorded)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Findings and leads. For an ncu result, the findings come from its counters."""
        if not self.store.has("steps") and (result := _of_ncu(self.store)):
            return Diagnosis(result[0], [], result[1], {})
        signals = self.signals
        if signals is None:
            return Diagnosis([], [], [], {})
        causes, abstained = findings(signals)
        critical = [] if self.beside else _critical(signals, self.store)
        return Diagnosis(causes, leads(signals, causes), abstained, limited_of(signals), critical)

    def conclusion(self, causes: list[Finding]) -> tuple[Verdict | None, list[Part]]:
        """The verdict and the account of the device to which the findings `causes` belong."""
        account = next((account for account in self.accounts if account.devices), None)
        if account is None:
            return None, []
        limits = bounds_of(self.machine, account.subjects[0].index)
        diagnosis = self.diagnosis
        return conclude(account.devices[0], self.step, causes, diagnosis.leads, limits, diagnosis.limited)


def _critical(signals: Signals, store: Store) -> list[CriticalPart]:
    """Return the critical path through all ranks; [] if it is unknown, as for a large job."""
    if len(store.ranks) < 2 or analysis.is_large(store):
        return []
    replay: Replay | None = signals.get("step.replay").value
    return replay.critical_path if replay else []


def step_of(accounts: list[Account]) -> Step:
    """The lowest rank's step, with the throughput of all ranks."""
    first = next((account for account in accounts if account.clean or account.devices), None)
    if first is None:
        return Step(None, None, None, 0, "")
    timeline = next((device.total_ms for device in first.devices if device.total_ms is not None), None)
    step = Step(None, timeline, None, 0, first.kind, first.source)
    if first.clean is None:
        step.basis_ms = timeline
        _timeline_interval(step, first)
        return step
    clean = first.clean
    step.clean_ms, step.clean_mean_ms, step.n = clean.median_ms, clean.mean_ms, clean.steps
    step.basis_ms = clean.basis_ms
    step.ci_ms = None if clean.ci_ms is None else list(clean.ci_ms)
    step.samples_per_s = total([a.clean.samples_per_s if a.clean else None for a in accounts])
    step.tokens_per_s = total([a.clean.tokens_per_s if a.clean else None for a in accounts])
    return step


def _timeline_interval(step: Step, account: Account) -> None:
    windows = account.windows
    if windows is None:
        return
    lengths = (windows.ends - windows.starts)[windows.used] / NS_PER_MS
    bounds = interval(lengths, np.mean)
    step.n, step.ci_ms = len(lengths), None if bounds is None else list(bounds)


def total(amounts: list[float | None]) -> float | None:
    """Return the sum, or None if there are no values or if one of them is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def _of_ncu(store: Store) -> tuple[list[Finding], list[Abstained]] | None:
    """Return findings from an imported ncu result, which has counters but no steps; None for others."""
    from fathom.diagnosis.profiled import profiled
    from fathom.recorder.dive import families_of

    families = families_of(store)
    return profiled(store, families) if families else None
