"""Generation without a cache: programs, and ops by hand."""

from __future__ import annotations

import pytest

from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.rules import Candidate
from fathom.diagnosis.signals import Prefix, Preparation, Work
from fathom.sounding.raw.importer import import_raw
from tests.support.findings_fakes import compute, raised, signals
from tests.support.findings_read import read
from tests.support.probe_programs import launch

KIND = "kernels-no-kv-cache"
PLAN = {"steps": 4, "settle": 4, "depth": "timeline"}
SAMPLES, PROMPT = 3, 6  # of the program


@pytest.mark.programs
@pytest.mark.parametrize(
    ("how", "steps", "within"),
    [
        ("prefix", "60", False),
        ("batches", "40", True),
        ("cache", "60", None),
        ("cached-batches", "40", None),
        ("sorted", "60", None),
    ],
)
def test_passes_over_a_growing_sequence_are_recognised(tmp_path, how, steps, within):
    pytest.importorskip("torch")
    run = launch(tmp_path, "generating.py", how, steps, plan=PLAN)
    assert run.status == 0, run.err
    import_raw(tmp_path, tmp_path / "out.fathom")
    prefixes = read(tmp_path / "out.fathom")["generation.prefix"]
    assert len(prefixes) == (within is not None)
    if within is None:
        return
    prefix = prefixes[0]
    assert (prefix.samples, prefix.within) == (SAMPLES, within)
    if within:
        assert prefix.lengths == list(range(PROMPT, PROMPT + 16))
    assert {"aten::addmm"} <= {work.op for work in prefix.works}


def work(ms: float, shapes: str, op: str = "aten::addmm") -> Work:
    return Work(Entry.COMPUTE, op, ms, 1.0, (op,), shapes, '["float", "float", "float"]')


def generation(*works: Work, lengths: list[int], within: bool = False) -> Prefix:
    return Prefix(lengths, 2, list(works), within)


def changes(prefix: Prefix, memory: float = 1e12) -> dict[str, float]:
    works = prefix.works
    ledger = [compute(each.family, each.ms) for each in works]
    known = {"generation_prefix": [prefix], "kernels_work": works, "kernels_ceilings": {"memory": memory}}
    candidate = raised(signals(ledger, **known), KIND)[KIND]
    pairs = [change.removeprefix("family:").rsplit("=", 1) for change in candidate.changes]
    return {family: float(factor) for family, factor in pairs}


def test_one_token_of_a_sequence_is_left_of_each_op():
    product = work(10.0, "[[1000], [200, 64], [64, 1000]]")
    other = work(5.0, "[[64, 64]]", "aten::other")
    assert changes(generation(product, other, lengths=[99, 100], within=True)) == {
        "aten::addmm": pytest.approx(0.01)
    }


def test_weights_are_read_for_one_token_too():
    """A weight of 40 MB at 0.6 of 100 GB/s takes 0.67 ms of the product's 10 ms."""
    product = work(10.0, "[[1000], [200, 10000], [10000, 1000]]")
    left = changes(generation(product, lengths=[99, 100], within=True), memory=100e9)["aten::addmm"]
    assert left == pytest.approx((40e6 / 60e9 * 1e3 + 0.002) / 10.0, rel=0.01)


def test_the_prompt_of_a_step_is_computed_in_either_form():
    prompt, later = work(1.0, "[[200, 64], [64, 64]]"), work(9.0, "[[202, 64], [64, 64]]", "aten::mm")
    assert set(changes(generation(prompt, later, lengths=[100, 101], within=True))) == {"aten::mm"}


def of_each_length(busy_ms: float, step_ms: float = 10.0) -> Candidate:
    """Steps of other lengths; half of the work is that of a product with a row per token."""
    product = work(busy_ms / 2, "[[1000], [202, 64], [64, 1000]]")
    known = {
        "generation_prefix": [generation(product, lengths=[100, 101])],
        "host_preparations": [
            Preparation("aten::_cudnn_attention_forward", 2.0, 2.0, 1.0, 0.9),
            Preparation("aten::addmm", 0.5, 0.5, 1.0, 0.8),
        ],
    }
    ledger = [compute("nvjet 2x66", busy_ms), LedgerRow("idle: dispatching", "", step_ms - busy_ms)]
    return raised(signals(ledger, step_timeline_ms=step_ms, **known), KIND)[KIND]


def test_each_length_launches_other_kernels_on_a_gpu():
    """A cache leaves 1 of 101 tokens of the product, and chooses no kernel for each length."""
    candidate = of_each_length(8.0)
    assert candidate.changes == (
        f"all-kernels={0.5 + 0.5 / 101:.6f}",
        "allocator=0",
        'op:"aten::addmm"=0.2000',
    )
    assert candidate.given == ('op:"aten::_cudnn_attention_forward"=0.1000',)  # plans remain with a cache
    assert sum(claim.ms for claim in candidate.claims) == pytest.approx(4.0, rel=0.02)
    assert not candidate.costless


def test_generation_without_a_cache_is_named_even_if_the_device_waits():
    assert of_each_length(1.0).costless


def test_without_a_growing_sequence_there_is_no_finding():
    known = {"generation_prefix": []}
    assert raised(signals([compute("a", 9.0)], **known), KIND) == {}
