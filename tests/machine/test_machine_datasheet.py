"""Datasheets agree with arithmetic, with each other, and with what drivers call their chips."""

from __future__ import annotations

import re

import pytest

from fathom.data import load
from fathom.machine import Ceiling, datasheet
from fathom.machine.datasheet.sheets import FILES, quantity, sheets

# Names as NVML spells them; by the architecture whitepapers: multiprocessors, bf16 FLOP a clock of the tensor
# cores of one, and the clock in MHz at which the maker counts the peak.
CHIPS = {
    "NVIDIA A100-SXM4-40GB": (108, 2048, 1410),
    "NVIDIA A100-SXM4-80GB": (108, 2048, 1410),
    "NVIDIA A100-PCIE-40GB": (108, 2048, 1410),
    "NVIDIA A100 80GB PCIe": (108, 2048, 1410),
    "NVIDIA H100 80GB HBM3": (132, 4096, 1830),
    "NVIDIA H100 PCIe": (114, 4096, 1620),
    "NVIDIA H100 NVL": (132, 4096, 1545),
    "NVIDIA H200": (132, 4096, 1830),
    "NVIDIA H200 NVL": (132, 4096, 1545),
    "NVIDIA H800": (132, 4096, 1830),
    "NVIDIA B200": (148, 8192, 1850),
    "NVIDIA GB200": (152, 8192, 2010),
    "NVIDIA B300 SXM6 AC": (148, 8192, 1850),
    "NVIDIA L4": (58, 1024, 2040),
    "NVIDIA L40S": (142, 1024, 2490),
    "NVIDIA GeForce RTX 4090": (128, 512, 2520),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": (188, 1024, 2617),
    "AMD Instinct MI300X": (304, 2048, 2100),
    "AMD Instinct MI355X": (256, 4096, 2400),
    "NVIDIA GH200 480GB": (132, 4096, 1830),
    "NVIDIA GH200 144G HBM3e": (132, 4096, 1830),
}
OTHERS = [
    "Tesla V100-SXM2-32GB",
    "NVIDIA GB300",
    "NVIDIA GB10",
    "NVIDIA Rubin",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
]


def sheet(name):
    match = datasheet.find({"name": name})
    assert match, name
    return match


@pytest.mark.parametrize("name", CHIPS)
def test_the_matrix_rate_matches_the_chips_issue_rate(name):
    sms, flop, mhz = CHIPS[name]
    published = sheet(name).figure("matmul.bf16")
    assert published.unit == "FLOP/s"
    assert published.value == pytest.approx(sms * flop * mhz * 1e6, rel=0.02)


@pytest.mark.parametrize("name", CHIPS)
def test_the_vector_rate_is_two_flop_a_core_and_clock(name):
    figures = sheet(name).figures
    if {"sms", "clock", "vector.fp32"} <= figures.keys():
        per_sm = figures["vector.fp32"].value / figures["sms"].value / figures["clock"].value
        assert per_sm == pytest.approx({"NVIDIA A1": 128}.get(name[:9], 256), rel=0.11)


@pytest.mark.parametrize("name", [*CHIPS, *OTHERS])
def test_narrower_types_are_faster_by_the_known_factors(name):
    figures = {key: figure.value for key, figure in sheet(name).figures.items()}
    bf16 = figures.get("matmul.bf16")
    for key, factor in (("fp16", 1), ("tf32", 0.5), ("fp8", 2), ("int8", 2)):
        # The GeForce's int8 is not slowed down as its matrix products with 32-bit sums are.
        expected = 4 if (key == "int8" and "4090" in name) else factor
        if bf16 and f"matmul.{key}" in figures and (key, name) != ("fp8", "NVIDIA Rubin"):
            assert figures[f"matmul.{key}"] == pytest.approx(bf16 * expected, rel=0.02), key
    if "matmul.fp4" in figures and "matmul.fp8" in figures:
        assert figures["matmul.fp4"] / figures["matmul.fp8"] == pytest.approx(
            3 if "B300" in name else 2, rel=0.01
        )


@pytest.mark.parametrize("name", [*CHIPS, *OTHERS])
def test_every_figure_has_its_source_and_a_likely_size(name):
    likely = {"hbm": (2e11, 3e13), "link": (1e11, 2e12), "pcie": (1e10, 1.3e11), "power": (50, 1500)}
    likely |= {"memory": (2e10, 3e11), "l2": (5e6, 2e8), "sms": (50, 310), "clock": (1.3e9, 2.7e9)}
    for key, figure in sheet(name).figures.items():
        assert len(figure.source) > 20 and (key == "sms") == (figure.unit == ""), key
        low, high = likely.get(key, (0, 1e17))
        assert low < figure.value < high, key


def test_each_name_has_one_sheet():
    for name in [*CHIPS, *OTHERS]:
        assert sum(bool(re.fullmatch(pattern, name, re.I)) for pattern, _ in sheets()) == 1, name


def test_every_sheet_of_the_files_is_reached_by_a_name():
    assert {sheet(name).name for name in [*CHIPS, *OTHERS]} == {s.name for _, s in sheets()}
    assert len(list(sheets())) == sum(len(load("fathom.machine.datasheet", name)) for name in FILES)


@pytest.mark.parametrize("name", ["NVIDIA T4", "NVIDIA H200X", "", None, 7, "NVIDIA H20", "NVIDIA L40"])
def test_a_chip_that_is_not_listed_has_no_sheet(name):
    assert datasheet.find({"name": name}) is None


@pytest.mark.parametrize(
    ("ceiling", "value"),
    [
        ("hbm.read", 4.8e12),
        ("hbm.triad", 4.8e12),
        ("matmul.bf16.sustained", 989.5e12),
        ("attention.forward.bf16", 989.5e12),
        ("attention.backward.bf16", 989.5e12),
        ("copy.h2d.pinned", 64e9),
        ("copy.d2h.pageable", 64e9),
        ("copy.peer", 450e9),
        ("link.peer", 450e9),
        ("collective.all_reduce", 450e9),
        ("vector.fp32", 67e12),
        ("shared.read", 132 * 128 * 1.98e9),
        ("vector.special", 132 * 16 * 1.98e9),
        ("matmul.fp4", None),
        ("l2.read", None),
        ("latency.launch", None),
        ("disk.read.sequential", None),
    ],
)
def test_the_figure_that_bounds_a_ceiling(ceiling, value):
    figure = sheet("NVIDIA H200").figure(ceiling)
    assert (figure.value if figure else None) == (pytest.approx(value) if value else None)


def test_measured_and_published_stand_beside_each_other():
    measured = Ceiling(
        id="hbm.copy", value=4.273e12, unit="B/s", low=4.2e12, high=4.3e12, samples=20, device=0
    )
    result = datasheet.beside(measured, sheet("NVIDIA H200"))
    assert result["fraction"] == pytest.approx(0.8902, abs=1e-4) and "H200" in result["source"]
    assert datasheet.beside(measured, None) is None


@pytest.mark.parametrize("words", ["4.8 TB", "fast", "4.8TB/s", "1 ZB/s", "-1 W", ""])
def test_odd_quantities_are_refused(words):
    if words == "4.8 TB":
        assert quantity(words) == (4.8e12, "B")
        return
    with pytest.raises(ValueError, match="not a datasheet quantity"):
        quantity(words)


SPR = {"vendor": "GenuineIntel", "family": 6, "model_number": 143, "stepping": 8, "sockets": 2,
       "physical_cores": 112, "usable_cores": 224, "threads_per_core": 2, "clock_max_mhz": 3800.0,
       "features": ["avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"]}  # fmt: skip


def test_a_host_by_rules():
    result = datasheet.find_host({"cpu": SPR})
    assert result.figure("host.read").value == pytest.approx(
        614.4e9
    )  # as Intel prints it: 307.2 GB/s a socket
    assert result.figure("host.matmul.fp32").value == pytest.approx(112 * 3.8e9 * 64)
    assert result.figure("host.matmul.bf16").value == 16 * result.figure("host.matmul.fp32").value
    assert result.figure("disk.read.random") is None and "DDR5-4800" in result.figure("host.copy").source


def test_fewer_cores_may_be_used_than_there_are():
    result = datasheet.find_host({"cpu": {**SPR, "usable_cores": 8}})
    assert result.figure("host.matmul.fp64").value == pytest.approx(4 * 3.8e9 * 32)


@pytest.mark.parametrize(
    ("cpu", "bandwidth", "flop"),
    [
        (
            {
                "vendor": "GenuineIntel",
                "family": 6,
                "model_number": 85,
                "stepping": 7,
                "features": ["avx512f"],
            },
            140.8e9,
            64,
        ),
        (
            {
                "vendor": "GenuineIntel",
                "family": 6,
                "model_number": 85,
                "stepping": 4,
                "features": ["avx512f"],
            },
            128e9,
            64,
        ),
        (
            {"vendor": "AuthenticAMD", "family": 23, "model_number": 49, "features": ["avx2", "fma"]},
            204.8e9,
            32,
        ),
        ({"vendor": "AuthenticAMD", "family": 25, "model_number": 17, "features": ["avx512f"]}, 460.8e9, 32),
        ({"vendor": "AuthenticAMD", "family": 26, "model_number": 2, "features": ["avx512f"]}, 614.4e9, 64),
        ({"vendor": "0x41", "model_number": 0xD0C, "features": ["asimd"]}, None, 16),
        ({"vendor": "Unknown"}, None, None),
    ],
)
def test_processors(cpu, bandwidth, flop):
    cpu = {"sockets": 1, "physical_cores": 10, "usable_cores": 10, "clock_nominal_mhz": 2000.0, **cpu}
    result = datasheet.find_host({"cpu": cpu})
    figures = [result.figure(name) if result else None for name in ("host.triad", "host.matmul.fp32")]
    assert [f and f.value for f in figures] == [
        bandwidth and pytest.approx(bandwidth, rel=1e-3),
        flop and pytest.approx(flop * 10 * 2e9),
    ]


def test_without_a_clock_there_is_no_rate():
    cpu = {k: v for k, v in SPR.items() if k != "clock_max_mhz"}
    assert datasheet.find_host({"cpu": cpu}).figure("host.matmul.fp32") is None
    assert datasheet.find_host({}) is None
