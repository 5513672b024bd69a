"""Findings about ranks and their collectives: on signals that must raise each of them, and on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from fathom.analysis.communication import ExpertLoad, LateRank, LostTime, Pipeline, PlacedGroup, Stage
from fathom.analysis.entries import Entry
from fathom.analysis.results import Claim, LedgerRow
from fathom.diagnosis.signals.collectives import AfterBackward, Blocking, Gathers, Padding, Search
from fathom.diagnosis.signals.ranks import Varying
from fathom.diagnosis.signals.rows import Lead
from tests.support.findings_fakes import (
    NCCL,
    account,
    collective,
    communication,
    compute,
    idle,
    raised,
    signals,
)  # fmt: skip

EXPOSED = (compute("gemm", 60.0), communication(40.0))
WAITING = (compute("gemm", 60.0), communication(40.0, Entry.WAITING_FOR_PEERS))
MOVING = (compute("gemm", 60.0), communication(40.0, Entry.MOVING_BYTES))
GATHERING = (compute("gemm", 60.0), communication(40.0, detail="ncclDevKernel_AllGather"))
STAGE = (compute("gemm", 50.0), communication(50.0))
BLOCKED = (compute("gemm", 60.0), communication(20.0), idle("python", 20.0))

STEADY = LateRank(rank=3, last=9, of=10, operations={"all_reduce": 9}, behind_ms=2.0, cost_ms=15.0, score=0.9)
BY_TURNS = LateRank(
    rank=3, last=3, of=10, operations={"all_reduce": 3}, behind_ms=2.0, cost_ms=4.0, score=0.3
)
COMPUTES = {
    "communication_late": [STEADY],
    "communication_excess": [LostTime("compute", 14.0), LostTime("idle: python", 1.0)],
}
READS = {"communication_excess": [LostTime("idle: input", 14.0)]}
MIXED_EXCESS = [LostTime("compute", 7.0), LostTime("idle: python", 6.0), LostTime("idle: input", 6.0)]
MIXED = {"communication_excess": MIXED_EXCESS}
THROTTLED = {"ranks_clocks": {0: 1980.0, 1: 1980.0, 2: 1980.0, 3: 1400.0}}
GPUS_ALIKE = {"ranks_clocks": {0: 1980.0, 1: 1980.0, 2: 1980.0, 3: 1920.0}}

ON_HOST = (idle("waiting for peers", 40.0),)
ALMOST_ALWAYS = msgspec.structs.replace(STEADY, score=0.84, steps=8, of_steps=10)
LATE_ON_HOST = {
    "communication_late": [ALMOST_ALWAYS],
    "communication_excess": [LostTime("idle: input", 14.0)],
    "communication_lead": Lead(12.0, [Claim(Entry.HOST_WAITS_FOR_PEERS, "", 40.0)]),
    "communication_contended": True,
}
CLEARLY_LATE = {
    "communication_late": [msgspec.structs.replace(ALMOST_ALWAYS, score=0.95)],
    "communication_contended": False,
}
COMPUTES_ON_HOST = {"communication_excess": [LostTime("ops", 14.0)]}


def undisturbed(**ms: float) -> dict[str, Any]:
    return {"ranks_undisturbed": {"input": 0.0, "work": 0.0, "host": 0.0, **ms}}


def tokens(most: float) -> dict[str, Any]:
    return {"communication_experts": [*(ExpertLoad(rank, 0.9) for rank in range(3)), ExpertLoad(3, most)]}


def pipeline(micro: int, share: float = 0.5) -> dict[str, Any]:
    stages = [Stage(rank, rank, 100 * (1 - share), 100 * share, share) for rank in range(4)]
    return {"communication_pipeline": [Pipeline(stages, micro, "1F1B", 3 / (micro + 3), 1.0)]}


def groups(hosts: int = 2, near_bytes: float = 0.2e9, near_rate: float = 200e9) -> dict[str, Any]:
    tensor = PlacedGroup("tp", [0, 4], hosts, 1e9, 30.0, 20e9)
    return {"communication_groups": [tensor, PlacedGroup("dp", [0, 1], 1, near_bytes, 5.0, near_rate)]}


def gathers(exposed: float = 32.0, again: float = 4.0, again_bytes: float = 4e9) -> dict[str, Any]:
    return {"communication_gathers": [Gathers(8.0, 8e9, exposed, 36.0, 4.5, again, 18.0, again_bytes)]}


def varying(late: float = 0.0, transfer: float = 0.0) -> dict[str, Any]:
    return {"communication_varying": Varying(late, 4, 0.3, transfer, 1.0, 9.0, "all_reduce")}


def after(exposed: float, size: float) -> dict[str, Any]:
    return {"communication_after_backward": [AfterBackward(8.0, size, exposed, 60.0)]}


def padding(factor: float, exposed: float) -> dict[str, Any]:
    return {"communication_padding": [Padding(factor, 8192, 4096, exposed, (NCCL,))]}


MEMORY = {"device_memory_bytes": 80e9, "device_used_bytes": 40e9}


class Case(NamedTuple):
    """Signals that must raise a kind with this gain, and changes to them after which it is not raised."""

    kind: str
    gain_ms: float
    ledger: tuple[LedgerRow, ...]
    signals: Mapping[str, Any]
    unless: Mapping[str, Mapping[str, Any]]


CASES = (
    Case(
        "straggler-compute", 14.0, WAITING, COMPUTES,
        {"its clock is low": THROTTLED, "its experts are busy": tokens(1.5), "it waits for input": READS},
    ),
    Case(
        "straggler-clocks", 14.0, WAITING, COMPUTES | THROTTLED,
        {"clocks are alike": GPUS_ALIKE, "it waits for input": READS},
    ),
    Case(
        "straggler-host", 12.0, WAITING,
        {"communication_late": [STEADY], "communication_excess": [LostTime("idle: python", 12.0)]},
        {
            "no entry has most": MIXED,
            "ranks are late by turns": {"communication_late": [BY_TURNS]},
        },
    ),
    Case(
        "straggler-input", 12.0, ON_HOST, LATE_ON_HOST | undisturbed(input=9.0),
        {
            "only some steps are late": undisturbed(input=2.0),
            "other work takes longer": undisturbed(work=9.0),
            "steps without disturbance are unknown": {"ranks_undisturbed": None},
        },
    ),
    Case(
        "straggler-input", 12.0, ON_HOST, LATE_ON_HOST | CLEARLY_LATE | undisturbed(),
        {"a busy host delays its ranks": {"communication_contended": True}},
    ),
    Case(
        "straggler-compute", 12.0, ON_HOST,
        LATE_ON_HOST | COMPUTES_ON_HOST | {"ranks_flops": {0: 1e9, 1: 1e9, 2: 1e9, 3: 2e9}},
        {"its FLOPs are those of the others": {"ranks_flops": dict.fromkeys(range(4), 1e9)}},
    ),
    Case(
        "unbalanced-experts", 14.0 * 0.3 / 0.4, WAITING, COMPUTES | tokens(1.3),
        {"loads are alike": tokens(1.1), "it waits for input": READS},
    ),
    Case(
        "jitter", 10.0, WAITING, {"communication_late": [BY_TURNS]} | varying(late=10.0),
        {
            "the same rank is late": {"communication_late": [STEADY]},
            "it costs little": varying(late=4.0),
            "a busy host delays its ranks": {"step_device": "cpu"},
        },
    ),
    Case(
        "jitter", 10.0, MOVING, {"communication_late": [STEADY]} | varying(transfer=10.0),
        {"it costs little": varying(transfer=4.0)},
    ),
    Case(
        "slow-group", 27.0, EXPOSED, groups(),
        {
            "it is on one host": groups(hosts=1),
            "the other group moves as much": groups(near_bytes=0.9e9),
            "links are alike": groups(near_rate=25e9),
        },
    ),
    Case(
        "synchronous", 10.0, BLOCKED, {"communication_blocking": [Blocking(4.0, "all_reduce", 10.0, 0.5)]},
        {
            "the host does not wait": {"communication_blocking": []},
            "it costs little": {"communication_blocking": [Blocking(4.0, "all_reduce", 1.0, 0.2)]},
        },
    ),
    Case(
        "unused-parameters", 6.0, BLOCKED, {"communication_unused": [Search(100, 5.0, 1.0)]},
        {
            "nothing is searched": {"communication_unused": []},
            "it costs little": {"communication_unused": [Search(100, 1.0, 0.5)]},
        },
    ),
    Case(
        "after-backward", 35.0, EXPOSED, after(40.0, 200e6),
        {
            "they start earlier": {"communication_after_backward": []},
            "it costs little": after(4.0, 200e6),
            "one bucket has nothing to hide in": after(40.0, 20e6),
        },
    ),
    Case(
        "gathers-late", 27.5, GATHERING, gathers(),
        {"few are exposed": gathers(exposed=20.0), "there are none": {"communication_gathers": []}},
    ),
    Case(
        "gathered-twice", 18.0, GATHERING, gathers() | MEMORY,
        {
            "memory is full": {"device_used_bytes": 70e9},
            "the backward pass gathers nothing": gathers(again=0.0, again_bytes=0.0),
            "it gathers other parameters": gathers(again_bytes=1e9),
            "they are hidden": gathers(exposed=4.0),
        },
    ),
    Case(
        "pipeline-bubble", 100 - 50 * (1 + 3 / 16), STAGE, pipeline(4),
        {
            "there are many micro-batches": pipeline(16),
            "the bubble is small": pipeline(4, share=0.05),
            "ranks form none": {"communication_pipeline": []},
        },
    ),
    Case(
        "padded-tokens", 15.0, EXPOSED, padding(2.0, 30.0),
        {
            "there is little padding": padding(1.1, 30.0),
            "it costs little": padding(2.0, 4.0),
            "sizes vary": {"communication_padding": []},
        },
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("work", "micro", "gain", "moves"),
    [
        ([10.0, 70.0], 4, 100 - 40 * 5 / 4, "stage 1 (rank 1)"),
        ([70.0, 10.0], 32, 100 - 40 * 33 / 32, "stage 0 (rank 0)"),  # more micro-batches gain nothing
        ([48.0, 52.0], 2, 100 - 52 * 9 / 8, ""),
    ],
)
def test_layers_move_from_a_long_stage(work: list[float], micro: int, gain: float, moves: str) -> None:
    stages = [Stage(rank, rank, ms, 100 - ms, 1 - ms / 100) for rank, ms in enumerate(work)]
    seen = Pipeline(stages, micro, "1F1B", 1 / (micro + 1), max(work) / (sum(work) / 2))
    ledger = [LedgerRow("ops", "aten::mm", 40.0), LedgerRow("idle: waiting for peers", "", 60.0)]
    shown = raised(signals(ledger, communication_pipeline=[seen]), "communication-pipeline-bubble")
    [candidate] = shown.values()
    assert candidate.gain_ms == pytest.approx(gain) and moves in candidate.action
    assert bool(candidate.action) == bool(moves)


def candidate_of(case: Case, given: Mapping[str, Any]) -> Any:
    known = {"communication_account": account(60.0, collective(36.0, 40.0)), **given}
    kind = f"communication-{case.kind}"
    return raised(signals(case.ledger, **known), kind).get(kind)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_a_finding_claims_what_it_gains(case: Case) -> None:
    candidate = candidate_of(case, case.signals)
    assert candidate is not None and candidate.evidence
    assert candidate.gain_ms == pytest.approx(case.gain_ms)
    assert sum(claim.ms for claim in candidate.claims) == pytest.approx(case.gain_ms)


@pytest.mark.parametrize(
    ("case", "given"),
    [
        pytest.param(case, given, id=f"{case.kind}: {why}")
        for case in CASES
        for why, given in case.unless.items()
    ],
)
def test_it_is_not_raised_without_its_cause(case: Case, given: Mapping[str, Any]) -> None:
    assert candidate_of(case, {**case.signals, **given}) is None


def test_the_extra_time_of_a_late_rank_is_of_the_clean_step():
    """The profiled step takes 100 ms, the clean one 80: the report's row of the rank is scaled, too."""
    given = signals(WAITING, step_headline_ms=80.0, **COMPUTES)
    (item,) = raised(given, "communication-straggler-compute").values()
    more = {e.text.split("rank: ")[1]: e.value for e in item.evidence if "than on the median rank" in e.text}
    assert more == {"compute": pytest.approx(11.2), "idle: python": pytest.approx(0.8)}
