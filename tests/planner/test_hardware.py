"""Hardware comes from datasheets and machine files, with the provenance of every figure."""

from __future__ import annotations

import json
import zipfile

import pytest

from fathom.errors import BadInputError
from fathom.planner.hardware import from_machine, hardware, known_systems
from fathom.planner.quantity import ASSUMED, DATASHEET, MEASURED
from tests.support.paths import EXAMPLES


@pytest.fixture(scope="module")
def measured():
    with zipfile.ZipFile(EXAMPLES / "train_gpt-counters-h200.fathom.zip") as archive:
        name = next(n for n in archive.namelist() if n.endswith("machine.json"))
        return json.loads(archive.read(name))


@pytest.mark.parametrize("name", known_systems())
def test_every_system_has_what_a_plan_needs(name):
    system = hardware(name)
    for key in ("matmul.bf16", "hbm", "memory", "power", "host_power", "launch", "jitter"):
        quantity = system[key]
        low, high = quantity.interval
        assert low <= quantity.value <= high and len(quantity.source) > 8
        assert quantity.provenance in (DATASHEET, ASSUMED)
    assert [d.gpus or 10**9 for d in system.fabric] == sorted(d.gpus or 10**9 for d in system.fabric)
    assert "price" not in system.figures


def test_published_fabrics():
    assert hardware("dgx-h100").domain(8).bandwidth.value == 450e9
    assert hardware("h100").domain(9).bandwidth.value == 50e9
    assert hardware("gb200").domain(72).bandwidth.value == 900e9
    assert hardware("rubin").announced and not hardware("b300").announced


def test_a_measured_machine_mixes_measurements_and_datasheet(measured):
    h200 = from_machine(measured)
    assert h200["matmul.bf16"].provenance == MEASURED
    assert h200["hbm"].value == pytest.approx(4.632e12, rel=1e-3)
    assert h200["memory"].provenance == DATASHEET
    assert h200.domain(8).bandwidth.provenance == DATASHEET


def test_the_processor_is_hardware_too(measured):
    cpu = from_machine(measured, gpu=None)
    assert cpu.chip == "CPU" and cpu["hbm"].value == pytest.approx(1.204e11, rel=1e-3)


def test_a_user_may_assume_a_figure():
    cheap = hardware("h100").assuming(["price=2.5", "hbm=3 TB/s"])
    assert cheap["price"].value == 2.5 and cheap["hbm"].value == 3e12
    assert cheap["hbm"].provenance == ASSUMED


def test_a_user_may_change_the_fabric():
    slow = hardware("h100").assuming(["link=100 GB/s", "network=25 GB/s", "oversubscription=4"])
    assert slow.domain(8).rate == 100e9
    assert slow.domain(9).rate == 25e9 / 4 and slow.domain(9).bandwidth.provenance == ASSUMED
    assert hardware("h800").domain(8).rate == 200e9 and hardware("h800").system == "h100"


def test_a_mixture_has_the_least_rates_and_the_mean_price():
    parts = [hardware("h100"), hardware("a100")]
    mixed = hardware("h100:24+a100:8")
    for key in ("matmul.bf16", "hbm", "memory"):
        assert mixed[key].value == min(part[key].value for part in parts)
    assert "matmul.fp8" not in mixed.figures  # an A100 has none
    assert mixed["power"].value == (24 * parts[0]["power"].value + 8 * parts[1]["power"].value) / 32
    assert mixed.domain(8).rate == 300e9 and mixed.domain(9).rate == 25e9
    assert mixed.mixed == ("h100", "a100-80gb")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hardware("h10"), "the nearest is h100"),
        (lambda: hardware("h100").matmul("fp4"), "no matrix rate for fp4; choose one of bf16"),
        (lambda: hardware("h100").assuming(["hbm"]), "FIGURE=VALUE"),
        (lambda: hardware("h100").assuming(["hmb=3 TB/s"]), "the nearest is hbm"),
        (lambda: hardware("h100:0+a100"), "write GPUs of each, like h100:24\\+a100:8"),
        (lambda: hardware("h100+h99"), "the nearest is h"),
        (lambda: hardware("h100").assuming(["oversubscription=0"]), "give a number above 0"),
        (lambda: hardware("h100").assuming(["network=8"]), "network is a figure in B/s"),
        (lambda: hardware("h100").assuming(["x=3"]), "choose from clock, cores, hbm"),
        (lambda: from_machine({"gpus": [], "fingerprint": "x"}), "fathom machine measure"),
    ],
)
def test_impossible_hardware_is_one_sentence(call, words):
    with pytest.raises(BadInputError, match=words):
        call()
