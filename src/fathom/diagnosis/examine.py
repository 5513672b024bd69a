"""The examination of a sounding: every analysis, assembled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from fathom import analysis
from fathom.analysis import Abstained, Account, Examination, Step
from fathom.analysis.results import (
    Energy,
    Finding,
    Input,
    Lead,
    LongSteps,
    Memory,
    Part,
    StepKind,
    Trial,
    Verdict,
)
from fathom.diagnosis.engine.findings import findings
from fathom.diagnosis.engine.leads import leads
from fathom.diagnosis.signals import Recorded, Signals
from fathom.diagnosis.step_kinds import kinds_of_ranks, lacking, named, of_ledger
from fathom.diagnosis.verdict import conclude, limited_of
from fathom.machine import limits_of
from fathom.sounding import Store
from fathom.timing import interval
from fathom.units import MS_PER_S, NS_PER_MS

LEAST = 0.05  # of the time: kinds of steps that take less are not diagnosed


def examine(store: Store, machine: dict[str, Any] | None = None, kind: str | None = None) -> Examination:
    """Everything that Fathom has to say about one sounding, which is only read: nothing is measured.

    The ceilings of `machine` bound its work, those that were recorded with it for None. `kind` asks for
    another kind of steps than the one that takes the most time, by its name or its number among `kinds`, from
    1. Raises BadInputError for a kind that was not recorded.
    """
    machine, store = store.machine if machine is None else machine, store.cached()
    met = analysis.meetings(store)
    accounts = _accounts(store, machine, met.of)
    kinds = kinds_of_ranks(accounts)
    other = named(kinds, kind)
    if other is not None:
        accounts, kinds = _accounts(store, machine, met.of, other.name), of_ledger(kinds, other)
    step = _step(accounts)
    energy, no_energy = _energy(store, accounts, step)
    feeding, memory = _feeding(store, accounts), _memory(store, accounts)
    tried, untried = _trials(store, accounts) if other is None else ([], [])
    seen = {one.kind: one for one in tried}
    asked = None if other is None else other.name
    found, far, unfound, limited = _findings(store, machine, accounts, step, feeding, memory, seen, asked)
    if other is None:
        _diagnose_others(store, machine, met.of, kinds)
    verdict, parts = _conclusion(machine, accounts, step, found, far, limited)
    return Examination(
        step=step,
        devices=[device for account in accounts for device in account.devices],
        integrity=analysis.integrity_of(
            store.manifest, [p for account in accounts for p in account.problems]
        ),
        input=feeding,
        memory=memory,
        energy=energy,
        findings=found,
        slow=[slow for rank in store.ranks for slow in analysis.slow_steps(store, rank)],
        long_steps=_long_steps(store, accounts),
        what_if=tried,
        abstained=[
            *(Abstained(**one) for one in store.manifest.abstained),
            *(one for account in accounts for one in _untold(account, accounts)),
            *_missing(store, accounts, feeding, memory),
            *no_energy,
            *met.abstained,
            *untried,
            *unfound,
            *lacking(kinds, accounts),
        ],
        sounding=_about(store),
        leads=far,
        kinds=kinds,
        verdict=verdict,
        account=parts,
    )


def _diagnose_others(
    store: Store, machine: dict[str, Any], met: Mapping[int, pl.DataFrame], kinds: list[StepKind]
) -> None:
    """Fill in what is to be said of the other kinds of steps that take over LEAST of the time.

    What costs no time is of the whole program, and said once.
    """
    for one in kinds:
        if one.used or not one.windows or (one.share_of_time or 0.0) <= LEAST:
            continue
        accounts = _accounts(store, machine, met, one.name)
        step, feeding = _step(accounts), _feeding(store, accounts)
        found, one.leads, _, limited = _findings(store, machine, accounts, step, feeding, None, {}, one.name)
        one.findings = [finding for finding in found if finding.gain_ms is not None]
        one.verdict, one.account = _conclusion(machine, accounts, step, one.findings, one.leads, limited)
        devices = [device for account in accounts for device in account.devices]
        one.ledger = devices[0].ledger if devices else []


def _conclusion(
    machine: dict[str, Any],
    accounts: list[Account],
    step: Step,
    found: list[Finding],
    far: list[Lead],
    limited: dict[str, str],
) -> tuple[Verdict | None, list[Part]]:
    """Of the device that the findings are of."""
    account = next((one for one in accounts if one.devices), None)
    if account is None:
        return None, []
    index = account.subjects[0].index
    return conclude(account.devices[0], step, found, far, limits_of(machine, index), limited)


def _accounts(
    store: Store, machine: dict[str, Any], met: Mapping[int, pl.DataFrame], kind: str | None = None
) -> list[Account]:
    """One a rank."""
    return [analysis.account_of(store, rank, machine, met.get(rank), kind) for rank in store.ranks]


def _long_steps(store: Store, accounts: list[Account]) -> list[LongSteps]:
    timed = [one for one in accounts if one.clean is not None]  # else marks say when work was launched
    found = (analysis.long_steps_of(store, one.rank, one.steps, one.kind) for one in timed)
    return [one for one in found if one is not None]


def _untold(account: Account, accounts: list[Account]) -> list[Abstained]:
    """What one rank's account could not say; after the first rank's, whose it is."""
    if account is accounts[0]:
        return account.abstained
    whose = f" of rank {account.rank}"
    return [
        Abstained(one.what if "cuda:" in one.what else one.what + whose, one.why) for one in account.abstained
    ]


def _findings(
    store: Store,
    machine: dict[str, Any],
    accounts: list[Account],
    step: Step,
    feeding: Input | None,
    memory: Memory | None,
    tried: dict[str, Trial],
    asked: str | None = None,
) -> tuple[list[Finding], list[Lead], list[Abstained], dict[str, str]]:
    """Of the first rank with a ledger, with what its counters show to limit each kernel family.

    Ranks run alike. Of a result of ncu, by its counters.

    `asked` is the kind of steps, where it is not the one that takes the most time.
    """
    if not store.has("steps") and (told := _of_ncu(store)):
        return told[0], [], told[1], {}
    account = next((a for a in accounts if a.devices), accounts[0] if accounts else None)
    if account is None:
        return [], [], [], {}
    recorded = Recorded(store, machine, account, step, feeding, memory, tried, asked)
    signals = Signals(None, recorded)
    found, abstained = findings(signals)
    return found, leads(signals, found), abstained, limited_of(signals)


def _of_ncu(store: Store) -> tuple[list[Finding], list[Abstained]] | None:
    """What an imported result of ncu shows, which has counters and no steps; None of anything else."""
    from fathom.diagnosis.profiled import profiled
    from fathom.recorder.dive import families_of

    families = families_of(store)
    return profiled(store, families) if families else None


def _trials(store: Store, accounts: list[Account]) -> tuple[list[Trial], list[Abstained]]:
    """Of the first rank that tried anything."""
    for account in accounts:
        found, abstained = analysis.trial_results(store.table("steps", account.rank).collect(), account.kind)
        if found or abstained:
            told = {one["what"] for one in store.manifest.abstained}
            return found, [one for one in abstained if one.what not in told]
    return [], []


def _step(accounts: list[Account]) -> Step:
    """The lowest rank's step, with what all ranks together put through."""
    first = next((a for a in accounts if a.clean or a.devices), None)
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
    step.samples_per_s = _total([a.clean.samples_per_s if a.clean else None for a in accounts])
    step.tokens_per_s = _total([a.clean.tokens_per_s if a.clean else None for a in accounts])
    return step


def _timeline_interval(step: Step, account: Account) -> None:
    windows = account.windows
    if windows is None:
        return
    lengths = (windows.ends - windows.starts)[windows.used] / NS_PER_MS
    found = interval(lengths, np.mean)
    step.n, step.ci_ms = len(lengths), None if found is None else list(found)


def _total(amounts: list[float | None]) -> float | None:
    """The sum, None as soon as one rank's share is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def _energy(store: Store, accounts: list[Account], step: Step) -> tuple[Energy | None, list[Abstained]]:
    if not any(account.clean for account in accounts):
        return None, []
    metered = [
        analysis.Metered(
            one.rank,
            store.table("telemetry", one.rank).collect(),
            one.stretches,
            one.indices,
            one.steps,
            one.kind,
            one.clean.mean_ms if one.clean else None,
        )
        for one in accounts
    ]
    found, why = analysis.energy_of(metered)
    if found is not None and found.per_step_j is not None and step.clean_mean_ms:
        a_second = found.per_step_j / step.clean_mean_ms * MS_PER_S
        found.per_sample_j = a_second / step.samples_per_s if step.samples_per_s else None
        found.per_token_j = a_second / step.tokens_per_s if step.tokens_per_s else None
    return found, why


def _feeding(store: Store, accounts: list[Account]) -> Input | None:
    """The first rank's that loads anything: ranks load alike."""
    for account in accounts:
        within, steps = account.measured()
        batches = store.table("input", account.rank).collect()
        if found := analysis.input_of(account.input_waits, batches, within, steps):
            found.copy_ms = found.copy_ms if account.copy_ms is None else account.copy_ms
            return found
    return None


def _memory(store: Store, accounts: list[Account]) -> Memory | None:
    devices = sorted({index for account in accounts for index in account.indices})
    peaks = store.table("memory").filter(pl.col("event") == "peak").collect()
    return analysis.memory_of(peaks, store.table("telemetry").collect(), devices)


def _missing(
    store: Store, accounts: list[Account], feeding: Input | None, memory: Memory | None
) -> list[Abstained]:
    """What this recording could not tell, where no analysis has said so itself."""
    imported = store.manifest.made_by == "import"
    unclean = "an imported trace has no undisturbed steps" if imported else "no clean step was recorded"
    found = []
    if not any(account.clean for account in accounts):
        found += [Abstained("clean step", unclean), Abstained("energy", unclean)]
    if feeding is None:
        found.append(Abstained("input", "no data loader was seen"))
    if memory is None:
        found.append(Abstained("memory", "neither an allocator's peaks nor telemetry was recorded"))
    return found


def _about(store: Store) -> dict[str, Any]:
    """What was recorded, where and how it ended, in short."""
    manifest = store.manifest
    return {
        "name": manifest.name,
        "command": manifest.command,
        "made_by": manifest.made_by,
        "created_ns": manifest.created_ns,
        "ended": manifest.ended,
        "exit_status": manifest.exit_status,
        "ranks": len(manifest.ranks),
        "versions": manifest.versions,
        "machine": _machine(store),
        "counters": _counted(store),
    }


def _counted(store: Store) -> bool:
    """Whether hardware counters were sampled or imported; `fathom kernel` folds and shows them."""
    return store.has("samples") or store.has("counters")


def _machine(store: Store) -> str:
    """The GPUs, or else the processor; of a trace the devices that it names."""
    gpus = [str(gpu.get("name")) for gpu in store.machine.get("gpus") or []]
    gpus = gpus or [name for rank in store.manifest.ranks for name in rank.devices.values() if name]
    cpu = str(store.machine.get("host", {}).get("cpu", {}).get("model") or "")
    counted = [
        f"{gpus.count(name)} × {name}" if gpus.count(name) > 1 else name for name in dict.fromkeys(gpus)
    ]
    return ", ".join(counted) or cpu
