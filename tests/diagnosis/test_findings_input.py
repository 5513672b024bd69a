"""Rules of the group `input` on signals that must raise them, and on those that must not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fathom.analysis import Step, account_of
from fathom.analysis.results import Input
from fathom.diagnosis.signals import (
    Call,
    HostWork,
    LoaderRegions,
    Product,
    Recorded,
    Signals,
    UnknownSignalError,
    Usage,
)
from fathom.sounding import LoaderFacts as About
from tests.support.findings_fakes import H200, compute, idle, product, raised, signals, work
from tests.support.timelines import Timeline, examination_of, store_of

LOADING = (
    "input-too-few-workers",
    "input-sample-by-sample",
    "input-slow-decode",
    "input-slow-transform",
    "input-collate",
    "input-storage-bound",
)


def loading(stages: dict[str, float], workers: int, lost: float = 5.0, **more: Any) -> Signals:
    """A step of 10 ms, of which `lost` wait for batches, on 16 cores."""
    known = {"input_stages_ms": stages, "input_workers": workers, "input_lost_ms": lost, "host_cores": 16}
    return signals([compute("a", 10.0)], **known | more)


@pytest.mark.parametrize(
    ("kind", "stages", "workers"),
    [
        ("input-too-few-workers", {"fetch": 20.0, "decode": 15.0}, 2),
        ("input-too-few-workers", {"fetch": 4.0, "decode": 3.0}, 0),
        ("input-slow-decode", {"fetch": 160.0, "read": 5.0, "decode": 120.0}, 12),
        ("input-slow-transform", {"fetch": 160.0, "read": 5.0, "decode": 20.0}, 12),
        ("input-slow-transform", {"fetch": 160.0}, 12),
        ("input-collate", {"fetch": 1.0, "collate": 30.0}, 2),
        ("input-collate", {"fetch": 50.0, "collate": 200.0}, 12),
        ("input-storage-bound", {"fetch": 40.0, "read": 30.0}, 4),
        ("input-storage-bound", {"fetch": 400.0, "read": 300.0, "decode": 50.0}, 14),
        ("input-too-few-workers", {"fetch": 33.0, "read": 32.0}, 0),
        ("input-too-few-workers", {"fetch": 3.0, "collate": 30.0}, 0),
    ],
)
def test_the_slow_stage_of_a_starved_device_is_named(kind, stages, workers):
    findings = raised(loading(stages, workers), *LOADING, "input-pinning")
    assert set(findings) == {kind}
    assert findings[kind].gain_ms == pytest.approx(
        5.0, rel=0.04
    )  # of a worker's batch some is paid for handing it over


@pytest.mark.parametrize(
    ("size", "kind", "sure"),
    [
        (8 * 150e3, "input-storage-bound", 0.85),  # eight small pictures
        (9.6e3, "input-storage-bound", 0.85),  # 32 ms of a disk that seeks for every page
        (None, "input-storage-bound", 0.6),
        (1e3, "input-too-few-workers", 0.6),
        (0.0, "input-too-few-workers", 0.6),
    ],
)
def test_waiting_that_brings_in_no_bytes_is_not_reading(size, kind, sure):
    (result,) = raised(loading({"fetch": 33.0, "read": 32.0}, 2, input_read_bytes=size), *LOADING).values()
    assert (result.kind, result.confidence) == (kind, sure)
    assert any("other than a file" in line.text for line in result.evidence) == (
        kind == "input-too-few-workers"
    )


@pytest.mark.parametrize(("batches", "expected"), [(1, set()), (4, {"input-too-few-workers"})])
def test_a_step_that_takes_several_batches_needs_them_all(batches, expected):
    """Two workers have a batch ready every 2 ms: in the 5 ms that a step works enough for one, not four."""
    given = loading({"fetch": 4.0}, 2, input_micro_steps=batches)
    assert set(raised(given, *LOADING)) == expected


def test_workers_are_counted_whole():
    result = raised(loading({"fetch": 0.4}, 0), *LOADING)["input-too-few-workers"]
    (line,) = (line for line in result.evidence if "keep up" in line.text)
    assert line.value == 1.0


@pytest.mark.parametrize(
    ("stages", "collate", "kind"),
    [
        ({"fetch": 0.5, "collate": 0.4}, None, {"input-sample-by-sample"}),  # rows of a tensor
        ({"fetch": 0.3, "collate": 3.0}, "train.py:9", {"input-collate"}),
        ({"fetch": 0.3, "collate": 3.0}, None, set()),  # graphs that a library joins
        ({"fetch": 0.2, "collate": 0.1}, "train.py:9", set()),  # the loader's own time
        # a transform, and no core is left for it
        ({"fetch": 60.0, "collate": 1.0}, None, {"input-slow-transform"}),
        ({"fetch": 60.0, "read": 59.0}, None, {"input-too-few-workers"}),  # a wait takes no core
    ],
)
def test_no_workers_are_advised_that_would_take_the_cores_of_the_step(stages, collate, kind):
    read = {} if "read" not in stages else {"input_read_bytes": 0.0}
    lost = sum(stages.get(name, 0.0) for name in ("fetch", "collate"))
    about = About(0, "data.Set", threads=2, tensors=2, bytes=1 << 20, collate_source=collate)
    known = {"input_about": about, "step_device": "cpu", "host_cores": 2, "input_samples": 256.0, **read}
    given = signals(
        [compute("a", 10.0 + lost)], input_stages_ms=stages, input_workers=0, input_lost_ms=lost, **known
    )
    assert set(raised(given, *LOADING)) == kind


@pytest.mark.parametrize(
    ("dataset", "collate", "kinds"),
    [
        ("train.Rows", 0.1, set()),
        ("train.Rows", 2.0, {"input-collate"}),
        (
            "torch.utils.data.dataset.Subset",
            0.1,
            {"input-sample-by-sample"},
        ),  # its dataset may take one index
    ],
)
def test_a_dataset_that_takes_all_indices_at_once_is_not_advised_to(dataset, collate, kinds):
    about = About(0, dataset, items=True, threads=2, tensors=2, bytes=1 << 20, collate_source="train.py:9")
    given = signals(
        [compute("a", 20.0)], input_stages_ms={"fetch": 0.9, "collate": collate}, input_workers=0,
        input_about=about, input_lost_ms=0.9 + collate, host_cores=2, input_samples=1024.0, step_device="cpu",
    )  # fmt: skip
    assert set(raised(given, *LOADING)) == kinds


@pytest.mark.parametrize(("samples", "kind"), [(1024.0, LOADING[1]), (64.0, LOADING[0])])
def test_batched_fetching_of_samples_in_memory_comes_before_workers(samples, kind):
    """10 ms for a batch: 10 us or 160 us for each sample."""
    given = signals(
        [compute("a", 20.0)], input_stages_ms={"fetch": 6.0, "collate": 4.0}, input_workers=0,
        input_lost_ms=10.0, host_cores=16, input_samples=samples,
    )  # fmt: skip
    assert set(raised(given, *LOADING)) == {kind}


@pytest.mark.parametrize(("others", "advised"), [(0.0, True), (4.0, True), (13.5, False)])
def test_no_workers_are_advised_for_cores_that_other_programs_use(others, advised):
    """Of 16 cores, the program computes on two; a transform needs a core for each worker."""
    about = About(0, "data.Set", threads=2, tensors=2, bytes=1 << 16)
    known = {"input_about": about, "step_device": "cpu", "host_cores": 16, "host_others_cores": others}
    stages = {"input_stages_ms": {"fetch": 60.0}, "input_workers": 0, "input_lost_ms": 60.0}
    findings = raised(signals([compute("a", 80.0)], **known, **stages), *LOADING)
    assert ("input-too-few-workers" in findings) == advised


@pytest.mark.parametrize(("made", "advised"), [(0.5, False), (1.0, False), (8.0, True), (40.0, True)])
def test_workers_are_advised_where_handing_a_batch_over_costs_less_than_making_it(made, advised):
    """Eight tensors cost 1.5 ms to receive, and up to twice that; a processor pays it in full."""
    about = About(0, "data.Set", threads=2, tensors=8, bytes=1 << 16)
    known = {"input_about": about, "step_device": "cpu", "host_cores": 16, "input_samples": 32.0}
    given = signals(
        [compute("a", 20.0 + made)],
        input_stages_ms={"fetch": made},
        input_workers=0,
        input_lost_ms=made,
        **known,
    )
    findings = raised(given, *LOADING)
    assert ("input-too-few-workers" in findings) == advised
    if advised:
        item = findings["input-too-few-workers"]
        assert item.gain_ms < made and item.gain_ms * (1 - item.doubt) > 0


def test_a_large_batch_costs_what_the_machine_takes_to_hand_it_over():
    """400 MB at a measured 1 GB/s take 400 ms: workers would be slower than a fetch of 300."""
    about = About(0, "data.Set", threads=2, tensors=1, bytes=400_000_000)
    known = {"input_about": about, "step_device": "cpu", "host_cores": 64, "input_samples": 8.0}
    stages = {"input_stages_ms": {"fetch": 300.0}, "input_workers": 0, "input_lost_ms": 300.0}
    slow, quick = (
        raised(signals([compute("a", 800.0)], **known, **stages, input_transport=rate), *LOADING)
        for rate in (1e6, 1e8)
    )
    assert "input-too-few-workers" not in slow and "input-too-few-workers" in quick


@pytest.mark.parametrize("iterable", [True, False])
def test_an_iterable_data_set_is_sharded_and_spawned_workers_are_kept(iterable):
    about = About(0, "data.Stream", iterable=iterable, context="spawn" if iterable else "fork")
    (result,) = raised(loading({"fetch": 40.0}, 0, input_about=about), *LOADING).values()
    assert ("get_worker_info" in result.remedy) == iterable == ("spawn" in result.remedy)
    assert "num_workers=" in result.remedy and "persistent_workers=True" in result.remedy


def padded(tokens: float | None, *rows: int, **more: Any) -> Signals:
    """Forward products of these rows, and of the gradients of weights, whose rows are no tokens."""
    products = [product("gemm", 4.0, m, 4096, 4096, op="aten::linear") for m in rows]
    back = work("wgrad", 4.0, "autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "aten::mm")
    adam = work("adam", 2.0, "Optimizer.step#AdamW.step", "aten::_fused_adamw_")
    works = [*(item.work for item in products), back, adam]
    known = {"numbers_products": [*products, Product(4096, 4096, 8192, 1, "bf16", back)], **more}
    ledger = [compute(name, ms) for name, ms in (("gemm", 4.0 * len(rows)), ("wgrad", 4.0), ("adam", 2.0))]
    said = {} if tokens is None else {"input_told_tokens": tokens}
    return signals(ledger, kernels_work=works, **known | said)


def test_tokens_that_the_program_reports_tell_padding_and_the_optimizer_gains_nothing():
    result = raised(padded(2048.0, 8192, 8192), "input-padding")["input-padding"]
    assert {claim.detail: claim.ms for claim in result.claims} == {"gemm": 6.0, "wgrad": 3.0}
    assert result.evidence[-1].value == pytest.approx(75.0) and result.confidence <= 0.6
    assert raised(padded(2 * 8192.0 / 4, 8192, input_micro_steps=2), "input-padding")


@pytest.mark.parametrize(
    "given",
    [
        padded(8192.0, 8192),
        padded(7800.0, 8192),  # a next token less in each sequence
        padded(16384.0, 8192),  # of all ranks, or of several micro-steps
        padded(64.0, 8192, 1024, 2048, 4096, 6000),  # no number of rows stands for the batch
        padded(64.0),
    ],
)
def test_rows_that_are_tokens_or_stand_for_nothing_are_no_padding(given):
    assert raised(given, "input-padding") == {}


def test_who_reports_no_tokens_is_not_judged():
    with pytest.raises(UnknownSignalError):
        raised(padded(None, 8192), "input-padding")


def test_where_the_stages_hold_no_parts_the_finding_is_less_sure():
    known, unknown = ({"fetch": 160.0, "decode": 1.0}, {"fetch": 160.0})
    sure, unsure = (raised(loading(s, 12), *LOADING)["input-slow-transform"] for s in (known, unknown))
    assert unsure.confidence < sure.confidence


def test_a_loader_that_keeps_up_or_a_step_that_never_waits_is_not_starved():
    assert raised(loading({"fetch": 16.0, "collate": 1.0}, 4), *LOADING, "input-pinning") == {}
    assert raised(loading({"fetch": 400.0}, 1, lost=0.0), *LOADING, "input-pinning") == {}


def test_the_thread_that_pins_is_named_where_workers_are_quicker():
    findings = raised(loading({"fetch": 4.0, "pin": 9.0}, 4), *LOADING, "input-pinning")
    assert set(findings) == {"input-pinning"}
    assert findings["input-pinning"].gain_ms == 5.0


def test_without_clean_steps_the_ledger_tells_what_is_lost():
    given = signals([compute("a", 5.0), idle("input", 5.0)], input_stages_ms={"fetch": 20.0}, input_workers=2)
    result = raised(given, *LOADING)["input-too-few-workers"]
    assert result.gain_ms is None and result.changes == ("input=0",) and result.claims[0].ms == 5.0


def test_a_trace_without_stages_says_so_by_half_the_confidence():
    findings = raised(signals([compute("a", 5.0), idle("input", 5.0)]), *LOADING)
    assert findings["input-too-few-workers"].confidence == 0.5


@pytest.mark.parametrize(("alone", "sure"), [(True, 0.8), (False, 0.5)])
def test_a_trace_may_say_that_there_are_no_workers_and_who_asks(alone, sure):
    regions = LoaderRegions(alone, "train.py(7): main")
    given = signals([compute("a", 5.0), idle("input", 5.0)], input_regions=regions)
    result = raised(given, *LOADING)["input-too-few-workers"]
    assert result.confidence == sure and result.source == "train.py(7): main"
    assert any("num_workers" in line.text for line in result.evidence) == alone


@pytest.mark.parametrize(("seeds", "gain"), [((), 500), ((-5,), 400), ((-5, 395), 300), ((10,), 500)])
def test_the_first_batch_of_a_loader_that_begins_in_the_step_cannot_be_hidden(seeds, gain, tmp_path):
    """A lone step takes five batches; `seeds`: when one is drawn. A sampler draws one within a batch."""
    made, ms = Timeline(), 10**6
    made.step(0, 1000 * ms)
    for k in range(5):
        at = (200 * k + 10) * ms
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        made.op(name, at, at + 100 * ms, kind="annotation")
        made.wait("input", at, at + 100 * ms)
        made.kernel(at + 100 * ms, at + 200 * ms, at + 99 * ms)
    for seed in seeds:
        for k, name in enumerate(("aten::empty", "aten::random_", "aten::item")):
            made.op(name, (seed + 10 + k) * ms, (seed + 11 + k) * ms)
    (finding,) = examination_of(tmp_path / "s.fathom", made).findings
    assert finding.id == "input-too-few-workers" and finding.gain_ms == pytest.approx(gain, rel=0.03)
    assert finding.low_ms < gain < finding.high_ms
    assert any("a loader's first" in line.text for line in finding.evidence) == (gain < 500)


@pytest.mark.parametrize(("seed", "first"), [(-5, 0.0), (12, 0.0), (395, 0.25)])
def test_a_first_batch_that_another_kind_of_step_takes_is_none_of_later_ones(seed, first, tmp_path):
    """Five steps of a batch each, of which the first enters no mean; `seed`: when one is drawn."""
    made, ms = Timeline(), 10**6
    made.step(0, 200 * ms, kind="eval")
    for k in range(5):
        at = (200 * k + 10) * ms
        if k:
            made.step(200 * k * ms, 200 * (k + 1) * ms)
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        made.op(name, at, at + 100 * ms, kind="annotation")
        made.kernel(at + 100 * ms, at + 180 * ms, at + 99 * ms)
    for k, name in enumerate(("aten::empty", "aten::random_", "aten::item")):
        made.op(name, (seed + 10 + k) * ms, (seed + 11 + k) * ms)
    store = store_of(tmp_path / "s.fathom", made)
    step = Step(clean_ms=200.0, timeline_ms=200.0, ci_ms=None, n=4, kind="train")
    recorded = Recorded(store, {}, account_of(store, 0, {}), step)
    assert Signals(None, recorded)["input.regions"].first == pytest.approx(first)


def restarting(took: list[float], workers: int) -> Signals:
    stages = {"fetch": 20.0, "collate": 2.0}
    return signals([], input_restarts_ms=took, input_workers=workers, input_steps=60, input_stages_ms=stages)


def test_workers_started_anew_cost_what_their_steps_took_beyond_others():
    result = raised(restarting([120.0, 140.0], 8), "input-worker-restart")["input-worker-restart"]
    lasting, without_first = 260.0 / 60, (98.0 + 118.0) / 60
    assert without_first <= result.gain_ms <= lasting
    assert result.gain_ms * (1 - result.doubt) <= without_first * 1.001


@pytest.mark.parametrize(("took", "workers"), [([], 8), ([100.0], 0)])
def test_no_restart_and_no_workers_are_no_finding(took, workers):
    assert raised(restarting(took, workers), "input-worker-restart") == {}


@pytest.mark.parametrize(
    ("anew", "batches", "kinds"),
    [(6.0, 0, {"input-iterator-each-step"}), (0.3, 0, set()), (0.0, 0, set()), (0.0, 2, set())],
)
def test_an_iterator_for_each_batch_costs_what_its_batch_does_not(anew, batches, kinds):
    about = About(0, "data.Set", workers=batches, batches=40)
    given = signals(
        [compute("a", 10.0), idle("input", 7.0)], input_anew_ms=anew, input_about=about, input_lost_ms=7.0,
        input_workers=0, input_stages_ms={"fetch": 0.2, "collate": 0.4}, host_cores=16, step_device="cpu",
    )  # fmt: skip
    results = raised(given, "input-iterator-each-step")
    assert set(results) == kinds
    for result in results.values():
        assert sum(claim.ms for claim in result.claims) == pytest.approx(6.0)
        assert 6.0 <= result.gain_ms < 17.0
        assert not raised(given, *LOADING)  # batches themselves take 0.6 ms


def test_workers_that_each_iterator_starts_have_no_predicted_gain():
    about = About(0, "data.Set", workers=2, batches=40)
    given = signals([], input_anew_ms=0.5, input_about=about, step_ms=200.0)
    result = raised(given, "input-iterator-each-step")["input-iterator-each-step"]
    assert result.gain_ms is None and result.unpredicted


@pytest.mark.parametrize(
    ("numbers", "batches", "anew"),
    [
        ([0] * 10, 40, 6.0),
        ([], 40, 0.0),
        ([0] * 10, 1, 0.0),  # an epoch is one batch
        ([0] * 10, None, 0.0),
        (list(range(10)), 40, 0.0),
        ([0, 1, 2, 3, 4] * 2, 40, 0.0),  # the program ends epochs early
        ([0] * 4, 40, 0.0),  # too few
    ],
)
def test_only_first_batches_of_long_epochs_show_new_iterators(numbers, batches, anew, tmp_path):
    made, ms = Timeline(), 10**6
    made.phase = "clean"
    for step, number in enumerate(numbers):
        made.step(20 * step * ms, 20 * (step + 1) * ms)
        made.add("input", loader=0, batch=number, start_ns=20 * step * ms, wait_ns=7 * ms,
                 fetch_ns=600_000, collate_ns=400_000)  # fmt: skip
    store = store_of(tmp_path / "s.fathom", made)
    facts = {"loaders": [{"loader": 0, "batches": batches}]}
    step = Step(clean_ms=20.0, timeline_ms=None, ci_ms=None, n=10, kind="train")
    recorded = Recorded(store, {}, account_of(store, 0, {}), step)
    store.manifest.ranks[0].facts.update(facts)
    assert Signals(None, recorded)["input.anew_ms"] == pytest.approx(anew)


def test_copies_from_pageable_memory_save_what_pinned_ones_would():
    copies = [work("HtoD pageable", 4.0, entry="copy", bytes=5.5e7)]
    findings = raised(signals([], kernels_work=copies, kernels_ceilings=H200), "input-pageable-copy")
    assert findings["input-pageable-copy"].claims[0].ms == pytest.approx(3.0)
    assert set(findings) == {"input-pageable-copy"}


def test_only_a_copy_on_the_computing_stream_is_not_overlapped():
    for alone, expected in ((True, {"input-copy-not-overlapped"}), (False, set())):
        copies = [work("HtoD pinned", 4.0, entry="copy", bytes=1e8, alone=alone)]
        assert set(raised(signals([], kernels_work=copies), "input-pageable-copy")) == expected


def test_offloaded_parameters_of_fsdp_are_no_batch():
    for region, expected in (("FSDP::pre_forward (layer.1)", set()), ("step", {"input-copy-not-overlapped"})):
        copies = [work("HtoD pinned", 4.0, entry="copy", bytes=1e8, region=region)]
        assert set(raised(signals([], kernels_work=copies), "input-pageable-copy")) == expected


PINNED = HostWork("aten::pin_memory", 6.0, 4.0, 2.0, 1 << 20)


def test_pinning_in_the_thread_that_launches_costs_what_the_device_waits():
    ledger = [compute("a", 6.0), idle("dispatching", 3.0), idle("allocator", 2.0)]
    result = raised(signals(ledger, host_pinning=[PINNED]), "input-pinning")["input-pinning"]
    assert [(claim.entry, claim.ms) for claim in result.claims] == [
        ("idle: dispatching", 3.0),
        ("idle: allocator", 1.0),
    ]
    hidden = HostWork("aten::pin_memory", 6.0, 0.0, 2.0, 1 << 20)
    assert raised(signals(ledger, host_pinning=[hidden]), "input-pinning") == {}


def test_page_locked_memory_that_is_asked_for_in_steps_is_pinning():
    asks = Call("cudaHostAlloc", "allocator", 1.0, 1.0)
    given = signals([compute("a", 8.0), idle("allocator", 2.0)], host_calls=[asks])
    assert set(raised(given, "input-pinning", "host-cuda-malloc")) == {"input-pinning"}
    seldom = Call("cudaHostAlloc", "allocator", 1.0, 0.1)
    assert raised(signals([compute("a", 8.0)], host_calls=[seldom]), "input-pinning") == {}


BLURRED = HostWork("aten::conv2d", 50.0, 40.0, 1.0, 5_000_000, "train.py(3): blur")


def prepared(ops: list[HostWork], sent: float) -> Signals:
    copies = [work("HtoD pinned", 1.0, entry="copy", bytes=sent)]
    ledger = [compute("a", 10.0), idle("dispatching", 42.0)]
    return signals(ledger, host_processor_ops=ops, kernels_work=copies)


def test_work_on_batches_that_are_then_sent_is_preprocessing():
    result = raised(prepared([BLURRED], 2e7), "input-cpu-preprocessing")["input-cpu-preprocessing"]
    assert result.gain_ms == 40.0 and result.source == BLURRED.source


@pytest.mark.parametrize(
    ("busy", "sent"),
    [
        (BLURRED, 1e3),  # processed samples stay on the host
        (HostWork("aten::conv2d", 50.0, 0.0, 1.0, 5_000_000), 2e7),  # the device is busy meanwhile
        (HostWork("aten::randperm", 50.0, 40.0, 1.0, 100), 2e7),
    ],
)
def test_other_work_of_the_processor_is_not(busy, sent):
    assert raised(prepared([busy], sent), "input-cpu-preprocessing") == {}


def test_a_device_that_waits_for_the_processor_s_own_work_is_not_launch_bound():
    assert raised(prepared([BLURRED], 2e7), "host-launch-bound") == {}
    assert set(raised(prepared([], 2e7), "host-launch-bound")) == {"host-launch-bound"}


def test_a_processor_loses_all_that_it_waits_for_batches():
    """Recording slows its steps down, so that what a replayed one takes longer would hide the wait."""
    alone = SimpleNamespace(subjects=[SimpleNamespace(index=None)], contended=False)
    step = Step(clean_ms=0.43, timeline_ms=0.61, ci_ms=None, n=238, kind="train", clean_mean_ms=0.455)
    given = Signals(None, Recorded(None, {}, alone, step, feeding=Input(wait_ms=0.19)))
    assert given.get("input.lost_ms").value == 0.19


@pytest.mark.parametrize(("worker", "lost"), [(None, 0.8), (0, 2.0)])
def test_waits_that_other_programs_lengthen_are_not_lost_to_the_loader(tmp_path: Path, worker, lost):
    """One wait in three is interrupted; waits for workers vary in any case."""
    timeline = Timeline(phase="clean", devices={})
    for batch, ms in enumerate([0.8, 0.7, 4.5] * 4):
        timeline.add(
            "input", loader=0, batch=batch, worker=worker, start_ns=batch * 10**7, wait_ns=round(ms * 1e6)
        )
    shared = SimpleNamespace(rank=0, subjects=[SimpleNamespace(index=None)], contended=True)
    step = Step(clean_ms=9.0, timeline_ms=9.0, ci_ms=None, n=12, kind="train", clean_mean_ms=9.0)
    store = store_of(tmp_path / "s.fathom", timeline)
    given = Signals(None, Recorded(store, {}, shared, step, feeding=Input(wait_ms=2.0)))
    assert given.get("input.lost_ms").value == pytest.approx(lost)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_mechanism_speaks_of_a_queue_only_if_there_are_workers(workers):
    result = raised(loading({"fetch": 20.0, "decode": 15.0}, workers), *LOADING)["input-too-few-workers"]
    assert ("num_workers=0" in result.mechanism) == (workers == 0)
    assert any("between two ready batches" in line.text for line in result.evidence) == (workers > 0)


@pytest.mark.parametrize(("read", "expected"), [(0.05, "system calls and waits"), (18.0, "reading files")])
def test_a_small_rest_of_system_calls_is_not_called_reading_files(read, expected):
    given = loading({"fetch": 20.0, "read": read}, 0, input_read_bytes=1e8)
    (result,) = raised(given, *LOADING).values()
    assert f"of which {expected}" in [line.text for line in result.evidence]


def brief(fetch: float, collate: float, waits: float, workers: int = 1, **more: Any) -> Signals:
    """A step of 12 ms on two cores, whose loader hands over three tensors of 83 KB."""
    about = About(loader=0, tensors=3, bytes=82_944, threads=2)
    known = {
        "step_device": "cpu",
        "step_ms": 12.0,
        "step_mean_ms": 12.0,
        "host_cores": 2,
        "input_about": about,
    }
    return loading({"fetch": fetch, "collate": collate}, workers, lost=waits, **known | more)


NEEDLESS = "input-needless-workers"


def test_workers_are_needless_where_making_a_batch_is_quicker_than_receiving_it():
    # a speech model on two cores: 12.1 ms with a worker, 10.1 without, where batches took 0.66 ms
    usage = Usage(system=0.0, faults=0.0, ticks=0.0, grown=0.0, ready=0.02)
    finding = raised(brief(0.44, 0.46, 1.9, host_usage=usage), NEEDLESS)[NEEDLESS]
    assert finding.gain_ms == pytest.approx(1.9 + 2 * 0.02 * 12 - (0.44 + 0.22 + 0.25))
    often = Usage(system=0.0, faults=0.0, ticks=0.0, grown=0.0, ready=0.4)  # longer than the worker can run
    taken = raised(brief(0.44, 0.46, 1.9, host_usage=often), NEEDLESS)[NEEDLESS].gain_ms - (1.9 - 0.91)
    assert taken == pytest.approx(0.9 + 0.1 + 3 * 0.18 + 82_944 / 5e6)  # makes a batch, and sends it
    quiet = raised(brief(0.44, 0.46, 1.9), NEEDLESS)[NEEDLESS]  # nothing took a core
    assert quiet.gain_ms == pytest.approx(1.9 - 0.91) and quiet.doubt < finding.doubt


@pytest.mark.parametrize(
    "given",
    [
        brief(3.0, 0.46, 1.9),  # batches take longer than the wait
        brief(0.44, 0.46, 1.9, input_made_ms=4.0),  # on average: some samples are slow
        brief(0.44, 0.46, 1.9, input_restarts_ms=[150.0], input_steps=100),
        brief(0.44, 0.46, 0.6),
        brief(0.44, 0.46, 1.9, workers=0),
        brief(0.44, 0.46, 1.9, communication_contended=True),
    ],
)
def test_workers_that_save_time_are_not_needless(given):
    assert not raised(given, NEEDLESS)


def test_the_collating_of_needless_workers_is_not_the_bottleneck():
    given = brief(0.3, 1.2, 2.4, step_ms=3.0, step_mean_ms=3.0)
    assert set(raised(given, NEEDLESS, *LOADING)) == {NEEDLESS}
