"""Generation without a cache: programs, and ops by hand."""

from __future__ import annotations

import pytest

from fathom.analysis.entries import Entry
from fathom.diagnosis.signals import Prefix, Work
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
    assert changes(generation(product, other, lengths=[100])) == {"aten::addmm": pytest.approx(0.01)}


def test_weights_are_read_for_one_token_too():
    """A weight of 40 MB at 0.6 of 100 GB/s takes 0.67 ms of the product's 10 ms."""
    product = work(10.0, "[[1000], [200, 10000], [10000, 1000]]")
    left = changes(generation(product, lengths=[100]), memory=100e9)["aten::addmm"]
    assert left == pytest.approx((40e6 / 60e9 * 1e3 + 0.002) / 10.0, rel=0.01)


def test_the_prompt_of_a_step_is_computed_in_either_form():
    prompt, later = work(1.0, "[[200, 64], [64, 64]]"), work(9.0, "[[202, 64], [64, 64]]", "aten::mm")
    assert set(changes(generation(prompt, later, lengths=[100, 101], within=True))) == {"aten::mm"}


def test_without_a_growing_sequence_there_is_no_finding():
    known = {"generation_prefix": []}
    assert raised(signals([compute("a", 9.0)], **known), KIND) == {}
