"""Ceilings measured on a real GPU: all there, plausible beside what its maker publishes, soon done."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from fathom import gauges
from fathom.gauges.catalogue import COLLECTIVES
from fathom.machine import Ceiling, Missing, datasheet, inventory

QUICK_S = 90
# Seen on one H200 with torch alone, before there were gauges: what a gauge finds must not be less.
NOISE = 0.95
SEEN = {
    "NVIDIA H200": {
        "hbm.read": 4.421e12,
        "hbm.write": 4.680e12,
        "hbm.copy": 4.273e12,
        "copy.h2d.pinned": 55.6e9,
        "copy.h2d.pageable": 25.6e9,
        "matmul.bf16": 783e12,
        "matmul.bf16.sustained": 600e12,
        "matmul.fp8": 1234e12,
        "matmul.tf32": 360e12,
        "matmul.fp32": 51e12,
        "matmul.fp64": 63e12,
        "attention.forward.bf16": 575e12,
    }
}
# Ceilings that cannot reach 50 % of the datasheet, with the bound.
LOOSER = {
    "copy.h2d.pageable": "the host copies it again",
    "copy.d2h.pageable": "the host copies it again",
    "attention.forward.bf16": "softmax",
    "attention.backward.bf16": "softmax, and work that is done again",
    "matmul.int8": "cuBLASLt's layouts",
}
LATENCIES_S = {
    "latency.launch": (5e-7, 2e-5),
    "latency.graph_node": (2e-7, 5e-6),
    "latency.synchronise": (5e-7, 5e-5),
    "latency.small_copy": (1e-6, 1e-4),
    "latency.item": (2e-6, 2e-4),
    "pace.forward": (5e-7, 5e-5),
    "pace.backward": (5e-7, 5e-5),
    "pace.optimizer": (5e-7, 5e-5),
    "pace.foreach": (1e-6, 2e-4),
    "pace.fused": (1e-7, 2e-4),
}


@dataclass
class Measured:
    ceilings: dict[str, Ceiling]
    missing: dict[str, Missing]
    seconds: float
    gpu: dict


@pytest.fixture(scope="module")
def quick() -> Measured:
    machine = inventory()
    started = time.monotonic()
    ceilings, missing = gauges.measure(gauges.plan(machine, force=True))
    taken = time.monotonic() - started
    for ceiling in ceilings:  # shown where a test fails
        print(ceiling.id, f"{ceiling.value:.4g}", ceiling.unit, ceiling.at, ceiling.conditions, ceiling.flags)
    for lack in missing:
        print(lack)
    by_id = {result.id: result for result in ceilings}
    return Measured(by_id, {lack.id: lack for lack in missing}, taken, machine["gpus"][0])


def test_the_quick_set_is_whole_and_quick(quick):
    assert set(quick.ceilings) | set(quick.missing) == set(gauges.QUICK)
    assert quick.seconds < QUICK_S


def test_only_what_the_chip_lacks_is_missing(quick):
    assert all("the chip has no" in lack.why for lack in quick.missing.values()), quick.missing


def test_rates_lie_between_half_of_the_datasheet_and_all_of_it(quick):
    sheet = datasheet.find(quick.gpu)
    if sheet is None:
        pytest.skip("no datasheet of this GPU")
    for name, result in quick.ceilings.items():
        published = datasheet.beside(result, sheet)
        if published and not name.startswith("host."):
            least = 0.1 if name in LOOSER else 0.5
            assert least < published["fraction"] < 1.05, (name, published)


def test_nothing_is_below_what_was_seen_before(quick):
    seen = SEEN.get(quick.gpu["name"], {})
    for name, value in seen.items():
        assert quick.ceilings[name].value > NOISE * value, quick.ceilings[name]


def test_caches_are_faster_than_memory_and_nearer_ones_than_farther(quick):
    values = {name: quick.ceilings[name].value for name in ("hbm.read", "l2.read", "shared.read")}
    assert values["hbm.read"] < values["l2.read"] < values["shared.read"]


def test_shared_memory_reads_at_most_128_bytes_a_clock(quick):
    from torch.cuda import get_device_properties

    clock = 1e6 * quick.gpu["sm_clock_max_mhz"]
    most = 128 * get_device_properties(0).multi_processor_count * clock
    assert 0.7 * most < quick.ceilings["shared.read"].value < 1.05 * most


def test_special_functions_are_a_small_part_of_the_multiply_adds(quick):
    ratio = quick.ceilings["vector.fp32"].value / 2 / quick.ceilings["vector.special"].value
    assert 3 < ratio < 20


def test_latencies_are_microseconds(quick):
    for name, (least, most) in LATENCIES_S.items():
        assert least < quick.ceilings[name].value < most, quick.ceilings[name]


def test_an_optimizer_in_one_kernel_takes_the_host_less_time(quick):
    assert quick.ceilings["pace.fused"].value < quick.ceilings["pace.foreach"].value


def test_conditions_of_the_moment_are_kept(quick):
    for name, result in quick.ceilings.items():
        if result.device is not None:
            assert result.conditions["sm_clock_mhz"] > 0 and "throttle" in result.conditions, name


def test_sustained_is_not_above_best(quick):
    best, sustained = quick.ceilings["matmul.bf16"], quick.ceilings["matmul.bf16.sustained"]
    assert sustained.value < 1.03 * best.value


def test_kernels_were_used_and_not_their_stand_ins(quick):
    flags = [flag for ceiling in quick.ceilings.values() for flag in ceiling.flags]
    assert not any("torch's operations" in flag for flag in flags)


def test_links_and_collectives_of_several_gpus():
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip("one GPU")
    plan = gauges.plan(inventory(), only=["link.peer", "copy.peer", "collective"], force=True)
    ceilings, missing = gauges.measure(plan)
    assert missing == []
    links = [ceiling for ceiling in ceilings if ceiling.id == "link.peer"]
    assert len([row for row in links[0].series if not row["both_ways"]]) == count * (count - 1)
    assert {ceiling.device for ceiling in ceilings if ceiling.id == "copy.peer"} == set(range(count))
    by_id = {ceiling.id: ceiling for ceiling in ceilings}
    for kind in COLLECTIVES:
        result = by_id[f"collective.{kind}"]
        assert result.value < 2.2 * links[0].value, result
        assert result.series[0]["seconds"] < 1e-3
