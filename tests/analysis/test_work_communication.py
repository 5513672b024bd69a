"""Bytes that collectives move over the links, from what torch records of them to the ledger."""

from __future__ import annotations

import json

import polars as pl
import pytest

from fathom.analysis.results import Device, LedgerRow
from fathom.analysis.roofline import at_ceiling
from fathom.analysis.work.registry import evaluate
from fathom.machine.limits import Limits
from tests.support.kineto_samples import op, small, write
from tests.support.work_frames import frame
from tests.support.works import family_work

MIB = 2**20


def moved(*said: object) -> float | None:
    return evaluate("record_param_comms", None, None, json.dumps([str(item) for item in said])).bytes


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (("allreduce", "Float", MIB, MIB, 4), 2 * 3 / 4 * 4 * MIB),
        (("allreduce", "BFloat16", MIB, MIB, 2), 2 * MIB),
        (("_allgather_base", "Half", MIB, 8 * MIB, 8), 7 / 8 * 16 * MIB),
        (("_reduce_scatter_base", "Float", 8 * MIB, MIB, 8), 7 / 8 * 32 * MIB),
        (("all_to_all", "Float", MIB, MIB, 4), 3 / 4 * 4 * MIB),
        (("broadcast", "Long", 10, 10, 4), 80),
        (("broadcast", "Long", 10, 10, 1), 0),
        (("allreduce", "Float", MIB, MIB, 1), 0),
        (("barrier", "Byte", 0, 0, 4), 0),
    ],
)
def test_bytes_over_the_links_of_one_rank(message, size):
    assert moved(*message) == pytest.approx(size)


@pytest.mark.parametrize(
    "message",
    [
        (),
        ("gossip", "Float", 1, 1, 2),
        ("allreduce", "Quaternion", 1, 1, 2),
        ("allreduce", "Float", "x", 1, 2),
    ],
)
def test_unrecorded_messages_are_not_guessed(message):
    assert moved(*message) is None


def test_a_trace_tells_the_message_of_a_collective(tmp_path):
    from fathom.sounding.kineto import read_trace

    record = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": 2049000,
        "Out msg nelems": 2049000,
    }
    events = [*small(), op("record_param_comms", 3, 1, **{**record, "Group size": 4})]
    ops = read_trace(write(tmp_path / "t.json", events)).tables["ops"]
    value = ops.filter(pl.col("name") == "record_param_comms")["values"][0]
    assert json.loads(value) == ["allreduce", "Float", "2049000", "2049000", "4"]
    assert ops.filter(pl.col("name") != "record_param_comms")["values"].null_count() < ops.height


def test_a_collective_needs_its_bytes_over_the_link():
    values = json.dumps(["allreduce", "Float", "1000000", "1000000", "4"])
    common = {"phase": "timeline", "burst": 0}
    ops = frame("ops", [{"id": 1, "name": "record_param_comms", "thread": 1, "start_ns": 0, "end_ns": 9,
                         "values": values, **common}])  # fmt: skip
    calls = frame("launches", [{"correlation": 5, "op": 1, "thread": 1, "api": "cudaLaunchKernelExC",
                                "start_ns": 2, "end_ns": 3, **common}])  # fmt: skip
    rows = [{"correlation": 5, "kind": "collective", "name": "nccl", "family": "nccl", "start_ns": 10,
             "end_ns": 100_010, **common}]  # fmt: skip
    window = pl.DataFrame({"start_ns": [0], "end_ns": [200_000], "used": [True]})
    limits = Limits(arithmetic={"matmul.bf16": 1e15}, memory=4e12, link=300e9)
    result = family_work(ops, calls, frame("kernels", rows), window, limits=limits).row(0, named=True)
    assert result["bytes"] == pytest.approx(6e6) and result["bound"] == "link"
    assert result["need_ns"] == pytest.approx(6e6 / 300e9 * 1e9)
    without = family_work(ops.clear(), calls, frame("kernels", rows), window, limits=limits).row(
        0, named=True
    )
    assert without["bytes"] is None and without["need_ns"] is None


def test_waiting_for_peers_needs_nothing():
    moving = LedgerRow("moving bytes", "nccl", 4, at_ceiling_ms=3.0)
    ledger = [moving, LedgerRow("waiting for peers", "nccl", 6, at_ceiling_ms=0.0)]
    device = Device(0, "cuda:0", [], 10, ledger, None)
    at_ceiling(device, Limits(arithmetic={"matmul.bf16": 1e15}, memory=4e12))
    assert (device.at_ceiling_ms, device.at_ceiling_known) == (3.0, 1.0)
