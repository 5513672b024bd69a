"""Signals of loops over elements and of repeated heads, on ops that torch's profiler recorded."""

from __future__ import annotations

from types import SimpleNamespace

import polars as pl
import pytest

from fathom.analysis.results import LedgerRow
from fathom.analysis.work import rows_of
from fathom.diagnosis.signals import Work
from fathom.diagnosis.signals import repeated_heads as heads_of
from fathom.diagnosis.signals.loops import ELEMENT, _nested, _repeated
from fathom.sounding.schema import empty
from tests.support.findings_fakes import raised, signals
from tests.support.work_frames import recorded

torch = pytest.importorskip("torch")
F = torch.nn.functional
KIND = "kernels-repeated-heads"


def stub(program) -> SimpleNamespace:
    ops = recorded(program).with_columns(phase=pl.lit("attribution"), ran=pl.lit("run.py:5"))
    ops = ops.with_columns(burst=pl.lit(0)).sort("start_ns")
    return SimpleNamespace(
        ops=ops,
        parents=rows_of(ops, ops, "parent"),
        read={},
        device=SimpleNamespace(device="cpu"),
        inside=lambda rows: pl.Series([True] * rows.height),
        rows=lambda name: empty(name).lazy(),
    )


def bodies(program) -> list[set[str]]:
    """The names of ops in each repeated sequence that takes elements."""
    given = stub(program)
    repeated = _repeated(given, _nested(given).outermost)
    names = [set(rows["name"]) for _, rows in repeated.group_by("body")]
    return [body for body in names if pl.Series(list(body)).str.contains(ELEMENT).any()]


def discount() -> None:
    rewards, last = torch.randn(40, 2), torch.zeros(2)
    for step in reversed(range(40)):
        last = rewards[step] + 0.9 * last


def layers() -> None:
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(30))
    )
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()


def weights_of_one_tensor() -> None:
    weights, x = torch.randn(30, 8, 8), torch.randn(4, 8)
    for layer in range(30):
        x = torch.relu(x @ weights[layer])


def generate() -> None:
    cache = torch.zeros(20, 2, 40, 8)
    for layer in range(20):
        cache[layer, :, 5:6] = torch.randn(2, 1, 8)
        F.scaled_dot_product_attention(torch.randn(2, 1, 8), cache[layer, :, :6], cache[layer, :, :6])


def moving_average() -> None:
    for average, parameter in [(torch.zeros(8), torch.ones(8)) for _ in range(40)]:
        average.lerp_(parameter, 0.1)


def test_a_loop_over_rows_repeats_its_ops():
    (body,) = bodies(discount)
    assert {"aten::select", "aten::mul", "aten::add"} <= body


@pytest.mark.parametrize("program", [layers, weights_of_one_tensor, generate, moving_average])
def test_loops_over_layers_parameters_and_caches_are_none(program):
    assert bodies(program) == []


def heads(monkeypatch, program) -> list[Work]:
    given = stub(program)
    copies = given.ops.filter(name="aten::copy_")
    works = [Work("ops", "aten::copy_", 2.0, 1.0, ("aten::copy_",), text) for text in copies["shapes"]]
    monkeypatch.setattr(heads_of, "work_by_shapes", lambda *_: works)
    return heads_of.repeated_heads(given)


def attention(repeat, **more):
    query, key = torch.randn(2, 8, 1, 16), torch.randn(2, 2, 64, 16)
    return lambda: F.scaled_dot_product_attention(query, repeat(key), repeat(key), **more)


def by_expand(key):
    return key[:, :, None].expand(2, 2, 4, 64, 16).reshape(2, 8, 64, 16)


@pytest.mark.parametrize("repeat", [by_expand, lambda key: key.repeat_interleave(4, dim=1)])
def test_copies_of_keys_for_each_head_are_recognised(monkeypatch, repeat):
    works = heads(monkeypatch, attention(repeat))
    assert [work.sizes[0] for work in works] == [[2, 2, 4, 64, 16]] * 2
    assert {work.source for work in works} == {"run.py:5"}


def shared():
    query, key = torch.randn(2, 8, 1, 16), torch.randn(2, 2, 64, 16)
    F.scaled_dot_product_attention(query, key, key, enable_gqa=True)


def repeated_for_no_attention():
    by_expand(torch.randn(2, 2, 64, 16)).sum()


def transposed():
    key = torch.randn(2, 64, 8, 16).transpose(1, 2).contiguous()
    F.scaled_dot_product_attention(torch.randn(2, 8, 1, 16), key, key)


MASKED = attention(by_expand, attn_mask=torch.ones(1, 64, dtype=torch.bool))


@pytest.mark.parametrize("program", [shared, repeated_for_no_attention, transposed, MASKED])
def test_other_copies_and_masked_attention_are_none(monkeypatch, program):
    assert heads(monkeypatch, program) == []


@pytest.mark.parametrize(("queries", "gain"), [(1, 4.0 + 0.75 * 2.0), (64, 4.0)])
def test_on_a_gpu_attention_of_one_query_reads_shared_heads_once(queries, gain):
    copy = Work("compute", "copy", 4.0, 2.0, ("aten::copy_",), "[[2, 2, 4, 64, 16]]")
    called = ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward")
    shapes = f"[[2, {queries}, 8, 16], [2, 64, 8, 16], [2, 64, 8, 16]]"
    works = [copy, Work("compute", "flash", 2.0, 1.0, called, shapes)]
    ledger = [LedgerRow(work.entry, work.family, work.ms) for work in works]
    candidate = raised(signals(ledger, kernels_repeated_heads=[copy], kernels_work=works), KIND)[KIND]
    assert sum(claim.ms for claim in candidate.claims) == gain


def test_repeated_heads_gain_the_time_of_their_copies():
    copy = Work("ops", "aten::copy_", 4.0, 2.0, ("aten::copy_",), "[[2, 2, 4, 64, 16]]", source="run.py:5")
    known = {"step_device": "cpu", "step_mean_ms": 10.0, "kernels_repeated_heads": [copy]}
    ledger = [LedgerRow("ops", "aten::copy_", 5.0), LedgerRow("ops", "aten::mm", 5.0)]
    candidate = raised(signals(ledger, **known), KIND)[KIND]
    assert (candidate.gain_ms, candidate.source) == (4.0, "run.py:5")
    assert not raised(signals(ledger, **(known | {"kernels_repeated_heads": []})), KIND)
