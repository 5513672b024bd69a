"""Families far from their ceilings: beside what findings explain, by what a replay says they would save."""

from __future__ import annotations

import json
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from fathom.analysis import Abstained
from fathom.analysis.results import Claim, Finding, Lead, Where
from fathom.diagnosis.engine import leads
from fathom.diagnosis.engine.leads import HINTS
from fathom.report import print_findings, print_leads, print_report
from tests.support.findings_fakes import AddingReplay, compute, idle, signals, work
from tests.support.report_samples import gpu


def far(family: str, ms: float, of_ceiling: float, **more):
    return compute(family, ms, at_ceiling_ms=of_ceiling * ms, bound="hbm", **more)


def finding(family: str, ms: float) -> Finding:
    claims = [Claim("compute", family, ms)]
    return Finding("x", "x", Where(), [], claims, ms, ms, ms, 0.1, 0.9, "", "", "")


def families(result: list[Lead]) -> list[str | None]:
    return [item.where.family for item in result]


def test_those_that_would_save_most_come_first_and_none_that_are_near():
    ledger = [far("near", 40.0, 0.79), far("slow", 10.0, 0.1), far("long", 20.0, 0.4), idle("python", 30.0)]
    result = leads(signals(ledger), [])
    assert families(result) == ["long", "slow"]
    assert result[0].gain_ms == pytest.approx(20.0 - 8.0 / 0.8)
    assert result[1].gain_ms == pytest.approx(10.0 - 1.0 / 0.8)
    assert result[1].low_ms < result[1].gain_ms < result[1].high_ms
    assert (result[1].share, result[1].of_ceiling, result[1].bound) == (
        pytest.approx(0.1),
        pytest.approx(0.1),
        "hbm",
    )


def test_five_at_most_and_none_below_a_hundredth_of_the_step():
    ledger = [*(far(f"family {i}", 5.0 + i, 0.1) for i in range(9)), far("small", 0.5, 0.1)]
    replay = AddingReplay(ledger)
    result = leads(signals(ledger, step_replay=replay), [])
    assert families(result) == [f"family {i}" for i in (8, 7, 6, 5, 4)]
    assert len(replay.asked) == 5
    assert leads(signals([far("small", 0.5, 0.1), idle("python", 99.5)]), []) == []


def test_what_findings_claim_is_left_out():
    ledger = [far("known", 10.0, 0.1), far("half", 10.0, 0.1), far("free", 8.0, 0.1)]
    result = leads(signals(ledger), [finding("known", 10.0), finding("half", 5.0)])
    assert families(result) == ["free", "half"]
    assert result[1].gain_ms == pytest.approx(5.0 - 0.5 / 0.8)


def test_kernels_as_short_as_empty_ones_are_no_distance():
    many = far("tiny", 10.0, 0.01, count=5000.0)
    assert leads(signals([many, far("other", 1.0, 0.9)]), []) == []


def test_what_a_replay_says_is_less_than_the_distance_is_not_told():
    class Waiting(AddingReplay):
        def gain(self, changes):
            result = super().gain(changes)
            return type(result)(0.001 * result.ms, 0.0, result.high)

    ledger = [far("slow", 10.0, 0.1), idle("dispatching", 90.0)]
    assert leads(signals(ledger, step_replay=Waiting(ledger)), []) == []


def test_without_ceilings_launches_or_a_replay_there_are_none():
    ledger = [far("slow", 10.0, 0.1)]

    class Refusing(AddingReplay):
        def gain(self, changes):
            return Abstained("prediction", "the model is 9 % off")

    assert leads(signals([compute("slow", 10.0)]), []) == []
    assert leads(signals(ledger, host_launches=0), []) == []
    assert leads(signals(ledger, step_replay=Refusing(ledger)), []) == []
    assert leads(signals([]), []) == []


def test_a_place_is_told_where_most_of_the_time_is_spent_for_it():
    ops = ("autograd::engine::evaluate_function: XBackward0", "XBackward0", "aten::stack", "aten::cat")
    works = [
        work("slow", 6.0, *ops, source="a.py(3)", module="A_0"),
        work("slow", 4.0, *ops, source="a.py(3)", module="A_1"),
        work("slow", 3.0, *ops, source="b.py(4)", module="A_2"),
    ]
    (result,) = leads(signals([far("slow", 13.0, 0.1)], kernels_work=works), [])
    assert result.op == "XBackward0 > aten::cat"
    assert (result.where.source, result.where.module) == ("a.py(3)", None)


@pytest.mark.parametrize(
    ("ops", "family", "technique"),
    [
        (("NativeLayerNormBackward0", "aten::native_layer_norm_backward"), "GammaBeta", "triton-layernorm"),
        (("aten::scaled_dot_product_attention", "aten::_flash_attention_forward"), "x", "flash-attention"),
        (("aten::linear", "aten::addmm"), "gemm", "max-autotune"),
        (("aten::gelu",), "vectorized_elementwise_kernel<Gelu>", "compiled-fusion"),
        (("aten::sort",), "radix", None),
    ],
)
def test_what_is_worth_trying_follows_from_the_op_or_the_family(ops, family, technique):
    given = signals([far(family, 13.0, 0.1)], kernels_work=[work(family, 13.0, *ops)])
    (result,) = leads(given, [])
    assert result.technique == technique and bool(result.hint) == (technique is not None)


def test_techniques_of_hints_are_in_the_lab():
    from fathom.lab import techniques

    assert {hint.technique for hint in HINTS if hint.technique} <= set(techniques())


def lead(**more) -> Lead:
    family = "vectorized_layer_norm_kernel<float, float, float, false> 32768x1x1·32x4x1"
    where = Where(0, "cuda:0", "LayerNorm_3", "attention", "train.py(63): forward", family)
    figures = {"op": "aten::native_layer_norm", "ms": 1.84, "share": 0.16, "at_ceiling_ms": 0.23}
    gain = {"gain_ms": 1.54, "low_ms": 1.5, "high_ms": 1.6, "gain_share": 0.136}
    rest = {"of_ceiling": 0.124, "bound": "hbm", "aim": 0.8, "change": "family:x=0.2"}
    return Lead(where=where, **(figures | gain | rest | more))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_they_are_separate_from_findings_and_every_line_fits(width):
    for show in (
        lambda console: print_report(gpu(leads=[lead(), lead(op="")]), console),
        lambda console: print_findings([], console=console, far=[lead()]),
        lambda console: print_leads([lead()], console),
    ):
        out = StringIO()
        show(Console(file=out, width=width, force_terminal=True, color_system=None))
        page = out.getvalue()
        assert max(map(len, page.splitlines())) <= width
        text = " ".join(page.split())
        assert "Headroom" in text and "beyond the findings" in text
        assert "12 % of hbm" in text and "fathom kernel SOUNDING vectorized_layer_norm_ke" in text


def test_without_any_the_report_is_as_it_was_and_asked_for_them_it_says_so():
    for show, says in ((lambda c: print_report(gpu(), c), False), (lambda c: print_leads([], c), True)):
        out = StringIO()
        show(Console(file=out, width=100))
        assert "Headroom" not in out.getvalue()
        assert ("No kernel family" in out.getvalue()) == says


def test_they_are_in_the_json_with_the_change_that_was_replayed():
    (result,) = json.loads(msgspec.json.encode(gpu(leads=[lead()])))["leads"]
    assert result["change"] == "family:x=0.2" and result["where"]["module"] == "LayerNorm_3"
