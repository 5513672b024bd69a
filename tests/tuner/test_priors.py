"""A knob is expected to gain as much as its remedy does on this host, whatever else a finding suggests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fathom.analysis.causes import AUTOGRAD
from fathom.analysis.results import Examination, Finding, Integrity, Step, Where
from fathom.diagnosis import examine
from fathom.diagnosis.loading import gains_of
from fathom.diagnosis.rules.kernels.precision import SWITCHES
from fathom.machine import bounding
from fathom.sounding import Manifest, Rank, Writer, conform, open_store
from fathom.tuner import catalogue
from fathom.tuner.facts import OPTIMIZERS, Facts, facts_of
from fathom.tuner.knobs import Knob, fitting
from fathom.tuner.priors import in_order, predicted, priors
from tests.support.findings_fakes import compute, idle, signals
from tests.support.paths import EXAMPLES

WORDS = frozenset({"torch", "loader", "cuda", "compiler", "bf16", "trains", "attention", "glibc"})


def knobs(name: str, facts: Facts) -> list[Knob]:
    return [knob for knob in fitting(catalogue(), facts) if knob.id == name]


def examined(*findings: tuple[str, float], action: str = "") -> Examination:
    """Return the results of a step of 10 ms with these findings and their gains in ms."""
    made = [
        Finding(kind, kind, Where(), [], [], gain, gain, gain, gain / 10, 1.0, "", "", "", action=action)
        for kind, gain in findings
    ]
    return Examination(
        Step(10.0, 10.0, None, 9, "train", basis_ms=10.0), [], Integrity([], []), None, None, None, made
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("input-slow-transform", "loader"),
        ("input-sample-by-sample", "loader"),
        ("input-collate", "loader"),
        ("input-cpu-preprocessing", "loader"),
        ("host-thread-contention", "thread-waiting"),
        ("host-python", "compile"),
        ("kernels-unfused-loss", "compile"),
        ("kernels-tensor-cores-idle", "matmul-precision"),
        ("kernels-math-attention", "attention"),
        ("kernels-tf32-off", "matmul-precision"),  # without the action for matrix products
    ],
)
def test_the_gain_of_another_remedy_is_no_prior(kind: str, name: str) -> None:
    facts = Facts(WORDS | {"several-cores"}, cores=8)
    with_finding = priors(knobs(name, facts), examined((kind, 5.0)), facts)
    assert with_finding == priors(knobs(name, facts), examined(), facts)
    assert name in with_finding


@pytest.mark.parametrize("switch", SWITCHES)
def test_matmul_precision_is_predicted_by_slow_products_only(switch: str) -> None:
    facts = Facts(WORDS, cores=8)
    finding = examined(("kernels-tf32-off", 5.0), action=SWITCHES[switch][0])
    known = priors(knobs("matmul-precision", facts), finding, facts)["matmul-precision"]
    assert known.of("high (TF32)") == (0.5 if switch == "products" else None)


@pytest.mark.parametrize("name", ["attention", "autocast", "matmul-precision", "compile"])
def test_the_account_predicts_nothing_where_rules_looked_for_the_cause(name: str) -> None:
    shares = {"attention": 0.5, "matmul": 0.5, "elementwise": 0.5}
    facts = Facts(WORDS | {"computes-on-cpu"}, cores=8, shares=shares)
    known = priors(knobs(name, facts), examined(), facts)[name]
    first = knobs(name, facts)[0].values[0].name
    assert (known.of(first), known.source) == (None, "unknown") and known.hope(first) > 0
    assert predicted({name: first}, {name: known}) is None
    cpu = replace(facts, words=facts.words - {"cuda"})
    on_cpu = priors(knobs(name, facts), examined(), cpu)[name]
    assert on_cpu.source == "account" and on_cpu.of(first) == known.hope(first)


def test_settings_that_cannot_act_are_not_tried() -> None:
    store = open_store(EXAMPLES / "train_gpt-h200.fathom.zip")
    facts = facts_of(store, examine(store, bounding(store.machine)))
    assert {"torch-optimizer", "memory-cache"} <= facts.words
    assert knobs("optimizer", facts) and knobs("device-memory", facts)
    by_hand = replace(facts, words=facts.words - {"torch-optimizer"})
    uncached = replace(facts, words=facts.words - {"memory-cache"})
    assert not knobs("optimizer", by_hand) and not knobs("device-memory", uncached)


@pytest.mark.parametrize(
    ("op", "is_one"),
    [
        ("Optimizer.step#AdamW.step", True),
        ("Optimizer.step#Lion.step", False),  # of the program: it has no fused form
        ("Optimizer.zero_grad#SGD.zero_grad", False),
        ("aten::add_", False),
    ],
)
def test_only_some_optimizers_have_other_forms(op: str, is_one: bool) -> None:
    assert bool(OPTIMIZERS.match(op)) == is_one


def test_a_finding_of_one_value_says_nothing_about_the_others() -> None:
    facts = Facts(WORDS, cores=8)
    known = priors(knobs("compile", facts), examined(("host-launch-bound", 4.0)), facts)
    compile_ = known["compile"]
    assert compile_.of("whole with CUDA graphs") == pytest.approx(0.4) and compile_.of("whole") is None
    assert in_order(knobs("compile", facts), known)[0][1].name == "whole with CUDA graphs"
    assert predicted({"compile": "whole with CUDA graphs"}, known) == pytest.approx(0.4)


def test_the_prior_is_the_gain_of_a_remedy_alone_and_that_of_cuda_graphs_its_own() -> None:
    facts, results = Facts(WORDS, cores=8), examined(("framework-not-compiled", 1.0))
    results.findings[0].alone_ms, results.findings[0].with_graphs_ms = 2.0, 4.5
    compile_ = priors(knobs("compile", facts), results, facts)["compile"]
    assert compile_.of("whole") == compile_.of("each layer") == pytest.approx(0.2)
    assert compile_.of("whole with CUDA graphs") == pytest.approx(0.45)
    assert compile_.because == ("framework-not-compiled",)
    more = examined(("host-launch-bound", 6.0), ("framework-not-compiled", 1.0))
    more.findings[1].with_graphs_ms = 2.0  # less than launches alone
    compile_ = priors(knobs("compile", facts), more, facts)["compile"]
    assert compile_.of("whole with CUDA graphs") == pytest.approx(0.6)


def gains(
    cores: int, on_cpu: bool, workers: int = 0, alone: bool = False, **more: object
) -> dict[int, float]:
    """Return the gains for a step of 10 ms, of which 5 ms make a batch."""
    given = signals(
        [compute("a", 5.0), idle("input", 5.0)],
        **{"input_stages_ms": {"fetch": 5.0}} | more,
        input_workers=workers,
        input_lost_ms=5.0,
        host_cores=cores,
        step_ms=10.0,
        **({"step_device": "cpu"} if on_cpu else {}),
    )
    return gains_of(given, (0, 1, 2, 8), alone)


def test_workers_gain_as_much_as_the_cores_allow() -> None:
    many, few = gains(16, on_cpu=False), gains(2, on_cpu=True)
    assert many[0] == 0 and many[1] == pytest.approx(0.45, abs=0.05)
    assert few[0] == 0 and few[1] < 0.3 and few[8] < 0.3
    assert gains(2, on_cpu=True, workers=2)[0] < 0


def test_without_workers_a_processor_waits_for_nothing() -> None:
    """Waits of 5 ms for batches of 1 ms: the program makes them itself in 1.25 ms."""
    waiting = {"input_stages_ms": {"fetch": 1.0}, "workers": 2}
    assert gains(2, on_cpu=True, **waiting)[0] == pytest.approx(0.375)
    for given in ({"alone": True}, {"communication_contended": True}, {"on_cpu": False}):
        assert gains(**{"cores": 2, "on_cpu": True, **waiting, **given})[0] <= 0


def test_the_loader_is_tried_by_the_gain_of_each_number_of_workers() -> None:
    facts = Facts(WORDS, cores=2, by_workers={1: 0.04, 2: 0.1, 0: 0.0})
    known = priors(knobs("loader", facts), examined(("input-too-few-workers", 5.0)), facts)
    order = [value.name for _, value in in_order(knobs("loader", facts), known)]
    assert known["loader"].of("one worker") == pytest.approx(0.04)
    assert order.index("a worker on every core") < order.index("one worker")


def test_a_loader_is_tried_early_though_other_programs_used_the_cores() -> None:
    idle_host, busy_host = gains(2, on_cpu=False), gains(2, on_cpu=False, host_others_cores=2.0)
    assert busy_host[1] < 0.05 < idle_host[1]
    assert gains(2, on_cpu=False, alone=True, host_others_cores=2.0) == idle_host
    facts = Facts(WORDS, cores=2, by_workers={1: 0.0}, by_workers_alone={1: 0.4})
    known = priors(knobs("loader", facts), examined(), facts)["loader"]
    assert known.hope("one worker") == 0.4
    assert predicted({"loader": "one worker"}, {"loader": known}) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    ("backward_ms", "device", "share"),
    [(5.0, {}, 0.3), (8.0, {}, 0.0), (5.0, {0: "a device"}, None)],  # at 8 ms, a closure runs it
)
def test_the_optimizer_takes_the_share_of_its_step_on_a_cpu(
    backward_ms: float, device: dict[int, str], share: float | None, tmp_path: Path
) -> None:
    writer, rows = Writer(tmp_path / "a.fathom"), range(4)
    begins = [10e6 * row for row in rows]
    steps = {"step": rows, "kind": "train", "mark_ns": begins, "end_ns": [t + 10e6 for t in begins]}
    writer.write(0, "steps", conform("steps", table({**steps, "phase": "timeline"})))
    calls = [("Optimizer.step#SGD.step", 7.0, 10.0), (f"{AUTOGRAD}: Mul", backward_ms, backward_ms + 1)]
    ops = [(name, t + 1e6 * start, t + 1e6 * end) for name, start, end in calls for t in begins]
    columns = dict(zip(("name", "start_ns", "end_ns"), map(list, zip(*ops, strict=True)), strict=True))
    about = {"id": range(len(ops)), "kind": "op", "phase": "timeline", "thread": 1}
    writer.write(0, "ops", conform("ops", table({**about, **columns})))
    manifest = Manifest(name="a", command=["python"], ranks=[Rank(rank=0, devices=device)])
    writer.finish(manifest, {"host": {"hostname": "here"}})
    facts = facts_of(open_store(tmp_path / "a.fathom"), examined())
    assert facts.shares.get("optimizer") == (None if share is None else pytest.approx(share))


def table(columns: dict[str, Any]) -> pl.DataFrame:
    """Return a table of these columns; a single value is that of all rows."""
    lists = {name: list(column) for name, column in columns.items() if isinstance(column, (list, range))}
    same = {name: pl.lit(column) for name, column in columns.items() if name not in lists}
    return pl.DataFrame(lists).with_columns(**same)


def test_further_values_of_a_knob_come_after_other_knobs_of_like_hope() -> None:
    words = WORDS - {"cuda"} | {"torch-optimizer"}
    facts = Facts(words, cores=8, shares={"optimizer": 0.2, "elementwise": 0.3})
    rows = [*knobs("optimizer", facts), *knobs("compile", facts)]
    order = [knob.id for knob, _ in in_order(rows, priors(rows, examined(), facts))]
    assert order[:2] == ["compile", "optimizer"]
