"""Examine a sounding: run all analyses and collect their results."""

from __future__ import annotations

from collections.abc import Iterator

from fathom import analysis
from fathom.analysis import Abstained, Account, Examination
from fathom.analysis.communication import LateRank, jitter_of, late_ranks, lost_by, to_clean
from fathom.analysis.results import CodeTime, CountedSteps, LongSteps, RecordingSummary, StepKind
from fathom.analysis.serving import Serving, requests_account, serving_tables
from fathom.diagnosis.ranks import Ranks
from fathom.diagnosis.signals.collectives import experts_in, pipeline_in
from fathom.diagnosis.step_kinds import kinds_of_ranks, lacking, named, of_ledger
from fathom.machine import from_machine
from fathom.machine.model import Machine
from fathom.sounding import Store

LEAST = 0.05  # of the time: kinds of steps that take less are not diagnosed


def examine(
    store: Store,
    machine: Machine | None = None,
    kind: str | None = None,
    spread: analysis.Spread | None = None,
) -> Examination:
    """Return all results on a sounding, which is only read; nothing is measured.

    `machine` gives the ceilings of the work; by default, they come from the sounding. `kind` selects a kind
    of steps by its name or by its number in `kinds`, from 1; the default is the kind with the most time.
    `spread` chooses where the ranks of a large job are analysed. Raises BadInputError if no steps of that
    kind were recorded.
    """
    store, machine = store.cached(), store.machine if machine is None else machine
    store, slower = analysis.representative(store)
    meetings = analysis.meetings(store)
    late = late_ranks(meetings.arrivals)
    ranks = Ranks(store, machine, meetings.of, late=tuple(late), spread=spread, peers=meetings)
    _explain(late, ranks)
    ranks, kinds = _of_kind(ranks, kind)
    diagnosis = ranks.diagnosis
    verdict, parts = ranks.conclusion(diagnosis.findings)
    serving, left_open = _serving(ranks, kinds, machine)
    to_clean(late, ranks.step)
    problems = [*meetings.problems, *(problem for account in ranks.accounts for problem in account.problems)]
    return Examination(
        step=ranks.step,
        devices=ranks.devices,
        integrity=analysis.integrity_of(store.manifest, problems),
        input=ranks.feeding,
        memory=ranks.memory,
        energy=ranks.energy[0],
        findings=diagnosis.findings,
        slow=[slow for rank in _with_slow_steps(store) for slow in analysis.slow_steps(store, rank)],
        long_steps=list(_long_steps(ranks)),
        what_if=ranks.trials[0],
        abstained=[
            *([slower.note()] if slower else []),
            *_abstained(ranks),
            *meetings.abstained,
            *diagnosis.abstained,
            *lacking(kinds, ranks.accounts),
            *left_open,
        ],
        sounding=_about(store),
        leads=diagnosis.leads,
        kinds=kinds,
        verdict=verdict,
        account=parts,
        late=late,
        ranks=analysis.summaries(ranks.devices, late, ranks.memory, _hosts(store)),
        jitter=jitter_of(meetings.arrivals),
        counted=[counted for account in ranks.accounts if (counted := _counted(store, account))],
        pipeline=pipeline_in(ranks.accounts),
        experts=experts_in(ranks.accounts),
        critical_path=diagnosis.critical,
        goodput=None if serving else analysis.goodput_of([store]),
        serving=serving,
        code=_code(ranks),
    )


def _of_kind(ranks: Ranks, kind: str | None) -> tuple[Ranks, list[StepKind]]:
    """Return the ranks' steps of a kind, and all kinds; by default, other kinds are diagnosed too."""
    kinds = kinds_of_ranks(ranks.accounts)
    chosen = named(kinds, kind)
    if chosen is not None:
        return ranks.of(chosen.name), of_ledger(kinds, chosen)
    _diagnose_others(ranks, kinds)
    return ranks, kinds


def _serving(ranks: Ranks, kinds: list[StepKind], machine: Machine) -> tuple[Serving | None, list[Abstained]]:
    """Return the account of the requests, with its findings, and those left open; None without requests."""
    tables = serving_tables(ranks.store)
    if tables is None:
        return None, []
    # Imported here, because few recordings have requests.
    from fathom.diagnosis.serving import join, serving_abstained, serving_findings, set_costs

    serving = requests_account(tables)
    serving.findings = serving_findings(serving, tables)
    join(serving, ranks.devices, kinds)
    set_costs(serving, ranks.store, from_machine(machine), ranks.energy[0])
    return serving, serving_abstained(serving, tables)


def _counted(store: Store, account: analysis.Account) -> CountedSteps | None:
    return analysis.counted_steps(store, account.rank, account.kind)


def _explain(late: list[LateRank], ranks: Ranks) -> None:
    """Add the host of each late rank, and the entries in which it lost the time."""
    hosts = _hosts(ranks.store)
    for rank in late:
        rank.host = hosts.get(rank.rank)
    if late:
        lost_by(late, ranks.devices, ranks.peers.arrivals if ranks.peers else None)


def _hosts(store: Store) -> dict[int, str | None]:
    return {rank.rank: rank.host for rank in store.manifest.ranks}


def _with_slow_steps(store: Store) -> list[int]:
    """Return the ranks to search for slow steps; of a large job, those whose manifest names the phase."""
    named = {phase.rank for phase in store.manifest.phases if phase.phase == "slow"}
    return [rank for rank in store.ranks if rank in named or not analysis.is_large(store)]


def _diagnose_others(ranks: Ranks, kinds: list[StepKind]) -> None:
    """Add findings, leads, a verdict and a ledger to other kinds of steps with more than LEAST of the time.

    Findings that cost no time concern the whole program, and are not repeated.
    """
    for kind in kinds:
        if kind.used or not kind.windows or (kind.share_of_time or 0.0) <= LEAST:
            continue
        mine = ranks.of(kind.name, beside=True)
        kind.leads = mine.diagnosis.leads
        kind.findings = [finding for finding in mine.diagnosis.findings if finding.gain_ms is not None]
        kind.verdict, kind.account = mine.conclusion(kind.findings)
        kind.ledger = mine.devices[0].ledger if mine.devices else []


def _long_steps(ranks: Ranks) -> Iterator[LongSteps]:
    """Return long steps of ranks with timed clean steps; other marks only show when work was launched."""
    for account in ranks.accounts:
        if account.clean is not None:
            outliers = analysis.long_steps_of(ranks.store, account.rank, account.steps, account.kind)
            if outliers is not None:
                yield outliers


def _code(ranks: Ranks) -> CodeTime | None:
    """Return the program's functions in the first rank's mean step, if its host does the work."""
    for account in ranks.accounts:
        if account.clean is not None and account.devices:
            if any(device.device != analysis.CPU for device in account.devices):
                return None
            mean_ms = account.clean.mean_ms
            return analysis.own_code_of(ranks.store, account.rank, account.steps, account.kind, mean_ms)
    return None


def _abstained(ranks: Ranks) -> Iterator[Abstained]:
    """Return the skipped analyses, with reasons."""
    yield from (Abstained(**absence) for absence in ranks.store.manifest.abstained)
    for account in ranks.accounts:
        yield from _of_rank(account, ranks.accounts[0])
    yield from _missing(ranks)
    yield from ranks.energy[1]
    yield from ranks.trials[1]


def _of_rank(account: Account, first: Account) -> list[Abstained]:
    """Return the skipped analyses of one rank, which is named unless it is the first."""
    if account is first:
        return account.abstained
    whose = f" of rank {account.rank}"
    return [
        Abstained(absence.what if "cuda:" in absence.what else absence.what + whose, absence.why)
        for absence in account.abstained
    ]


def _missing(ranks: Ranks) -> Iterator[Abstained]:
    """Return the sections for which the recording has no data."""
    imported = ranks.store.manifest.made_by == "import"
    unclean = "an imported trace has no undisturbed steps" if imported else "no clean step was recorded"
    if not any(account.clean for account in ranks.accounts):
        yield Abstained("clean step", unclean)
        yield Abstained("energy", unclean)
    if ranks.feeding is None:
        yield Abstained("input", "no data loader was recorded")
    if ranks.memory is None:
        yield Abstained("memory", "neither an allocator's peaks nor telemetry was recorded")


def _about(store: Store) -> RecordingSummary:
    """Return a summary of the recording: the program, the machine, and how the program ended."""
    manifest = store.manifest
    return RecordingSummary(
        name=manifest.name,
        command=manifest.command,
        settings=manifest.settings,
        made_by=manifest.made_by,
        created_ns=manifest.created_ns,
        ended=manifest.ended,
        exit_status=manifest.exit_status,
        error=manifest.error,
        ranks=len(manifest.ranks),
        programs={rank.rank: str(rank.facts.get("program") or "") for rank in manifest.ranks},
        versions=manifest.versions,
        machine=_machine(store),
        counters=store.has("samples") or store.has("counters"),
    )


def _machine(store: Store) -> str:
    """Return the names of the GPUs or else the processor; for a trace, the devices that it names."""
    gpus = [str(gpu.get("name")) for gpu in store.machine.get("gpus") or []]
    gpus = gpus or [name for rank in store.manifest.ranks for name in rank.devices.values() if name]
    cpu = str(store.machine.get("host", {}).get("cpu", {}).get("model") or "")
    counted = [
        f"{gpus.count(name)} × {name}" if gpus.count(name) > 1 else name for name in dict.fromkeys(gpus)
    ]
    return ", ".join(counted) or cpu
