"""Every check fails on a host that is mis-set, and passes on the mended one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.machine.checks import Host, checks, examine, this_host
from fathom.machine.checks.model import conclude, failed
from fathom.machine.checks.registry import READERS
from fathom.report.checks import page
from tests.support.machine_check_hosts import FakeNvml, cases, fake_host, merged

CASES = cases()
STATUSES = {"pass", "fail", "not_applicable", "abstained"}
BY_ID = {check.id: check for check in checks()}


def look(host: Host, name: str):
    (result,) = examine(host, [BY_ID[name]])
    return result


def test_every_check_has_exactly_one_case_and_a_reader() -> None:
    assert set(CASES) == set(BY_ID)
    assert {check.reader or check.id for check in checks()} == set(READERS)


def test_there_are_at_least_fifty_checks_and_ids_are_unique() -> None:
    assert len(BY_ID) == len(checks()) >= 50


@pytest.mark.parametrize("name", CASES)
def test_a_mis_set_host_fails(name: str, tmp_path: Path) -> None:
    result = look(fake_host(tmp_path, CASES[name]["host"]), name)
    assert (result.status, result.reason) == ("fail", None)
    assert CASES[name]["says"] in result.observed


@pytest.mark.parametrize("name", CASES)
def test_the_fixed_host_passes(name: str, tmp_path: Path) -> None:
    result = look(fake_host(tmp_path, merged(CASES[name]["host"], CASES[name]["mend"])), name)
    assert (result.status, result.reason) == ("pass", None)


@pytest.mark.parametrize("name", CASES)
def test_every_failure_says_what_to_do(name: str, tmp_path: Path) -> None:
    result = look(fake_host(tmp_path, CASES[name]["host"]), name)
    assert result.why and result.fix and result.source.startswith("http")
    assert "no published figure" in result.costs.lower() or "http" in result.costs
    assert not any("{" in command and "}" not in command for command in result.commands)
    written = BY_ID[name].commands
    assert len(result.commands) >= len(written), "a command whose blanks were not filled is missing"


def test_the_costliest_come_first() -> None:
    weights = [check.weight for check in checks()]
    assert weights == sorted(weights, reverse=True)


def test_this_machine_has_a_status_for_every_check() -> None:
    results = examine(this_host())
    assert [r.id for r in results] == [c.id for c in checks()]
    assert {r.status for r in results} <= STATUSES
    assert all(r.observed or r.reason for r in results)


def test_a_bare_host_fails_no_check_and_gives_reasons(tmp_path: Path) -> None:
    """No file, no GPU, no command: nothing can be seen, so nothing can be wrong."""
    for result in examine(Host(root=tmp_path)):
        assert result.status in ("not_applicable", "abstained", "pass"), result.id
        assert result.observed or result.reason


def test_without_a_gpu_gpu_checks_do_not_apply(tmp_path: Path) -> None:
    for result in examine(fake_host(tmp_path, {})):
        if result.group == "gpu":
            assert result.status == "not_applicable"
            assert "no GPU" in (result.reason or "")


def test_without_a_manifest_its_checks_do_not_apply(tmp_path: Path) -> None:
    for result in examine(fake_host(tmp_path, {"gpus": [{}]})):
        if result.group == "kubernetes":
            assert (result.status, result.reason) == ("not_applicable", "no manifest was given")


def test_a_gpu_that_offers_nothing_is_never_judged(tmp_path: Path) -> None:
    host = fake_host(tmp_path, {"gpus": [{}]})
    host.nvml.gpus = [{}]
    for result in examine(host):
        if result.group == "gpu":
            assert result.status in ("not_applicable", "abstained"), result.id


LOST, NO_PERMISSION = 15, 4


@pytest.mark.parametrize("code", [LOST, NO_PERMISSION])
def test_a_gpu_that_refuses_every_query_abstains(code: int, tmp_path: Path) -> None:
    host = fake_host(tmp_path, {"gpus": [{}]})
    host.nvml.gpus = [{name: {"error": code} for name in host.nvml.gpus[0]}]
    by_id = {result.id: result for result in examine(host) if result.group == "gpu"}
    assert by_id["gpu.power_cap"].status == "abstained"
    assert "failed (" in (by_id["gpu.power_cap"].reason or "")
    assert not [r.id for r in by_id.values() if r.status in ("pass", "fail")]


def test_one_bad_gpu_of_several_is_named_and_fills_the_command(tmp_path: Path) -> None:
    result = look(fake_host(tmp_path, {"gpus": [{}, {}, {"EnforcedPowerLimit": 350_000}]}), "gpu.power_cap")
    assert result.observed == "GPU 2: limited to 350 W, 700 W by default"
    assert result.commands == ["nvidia-smi -i 2 -pl 700"]
    assert [s["status"] for s in result.subjects] == ["pass", "pass", "fail"]


def test_an_idle_link_abstains(tmp_path: Path) -> None:
    idle = {"CurrPcieLinkGeneration": 1, "PerformanceState": 8}
    result = look(fake_host(tmp_path, {"gpus": [idle]}), "gpu.pcie_generation")
    assert result.status == "abstained"
    assert "idle" in (result.reason or "")


def test_more_gpus_than_fit_a_line_are_counted(tmp_path: Path) -> None:
    result = look(fake_host(tmp_path, {"gpus": [{"PersistenceMode": 0}] * 12}), "gpu.persistence")
    assert "and 4 more: persistence mode is off" in result.observed
    assert len(result.subjects) == 12


def test_open_kernel_modules_need_no_peermem(tmp_path: Path) -> None:
    case = merged(
        CASES["gpu.peermem"]["host"],
        {
            "files": {
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64\n"
            }
        },
    )
    assert look(fake_host(tmp_path, case), "gpu.peermem").status == "pass"


def test_bridges_readable_only_by_root_abstain(tmp_path: Path) -> None:
    change = {"files": {"sys/bus/pci/devices/0000:15:00.0/config": {"length": 64, "at": {0: "de10"}}}}
    case = {**CASES["gpu.acs"]["host"], **change}
    case["files"] = {**CASES["gpu.acs"]["host"]["files"], **change["files"]}
    result = look(fake_host(tmp_path, case), "gpu.acs")
    assert (result.status, result.reason) == (
        "abstained",
        "reading the extended configuration of PCIe bridges needs root",
    )


@pytest.mark.parametrize("text", ["", "[1.0] Linux version 6.8\n"])
def test_the_kernel_log_has_to_be_there_to_be_free_of_faults(text: str, tmp_path: Path) -> None:
    result = look(fake_host(tmp_path, {"gpus": [{}], "commands": {"dmesg": text}}), "gpu.xid")
    assert result.status == ("pass" if text else "abstained")


def test_self_scaling_drivers_are_judged_by_their_preference(tmp_path: Path) -> None:
    policy = "sys/devices/system/cpu/cpufreq/policy0/"
    files = {
        f"{policy}scaling_governor": "powersave\n",
        f"{policy}scaling_driver": "intel_pstate\n",
        f"{policy}energy_performance_preference": "performance\n",
    }
    assert look(fake_host(tmp_path, {"files": files}), "kernel.governor").status == "pass"


def test_a_broken_reader_hides_no_other_check(tmp_path: Path) -> None:
    class Broken(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:  # noqa: N802
            return -3

    host = fake_host(tmp_path, {"gpus": [{}]})
    host = Host(root=host.root, nvml=Broken([{}], {}), affinity=frozenset({0}))
    assert len(examine(host)) == len(checks())


def test_a_rank_is_judged_by_its_own_gpu(tmp_path: Path) -> None:
    base = CASES["kernel.gpu_locality"]["host"]
    far = {"PciInfo": {"busId": b"00000000:AB:00.0"}}
    near_zero = {
        "sys/bus/pci/devices/0000:ab:00.0/numa_node": "0\n",
        "sys/bus/pci/devices/0000:ab:00.0/local_cpulist": "0-3\n",
    }
    case = {**base, "gpus": [{}, far], "files": {**base["files"], **near_zero}}
    assert look(fake_host(tmp_path / "all", case), "kernel.gpu_locality").status == "fail"
    ranked = {**case, "environment": {"LOCAL_RANK": 1}}
    assert look(fake_host(tmp_path / "one", ranked), "kernel.gpu_locality").status == "pass"


def test_every_check_has_a_title_for_passing_and_one_for_failing():
    """Not "!! The image is pinned" where it is not."""
    for check in checks():
        assert check.problem and check.problem != check.title, check.id
        assert not check.problem.endswith("."), check.id
    pinned = next(check for check in checks() if check.id == "kubernetes.image")
    failing = "\n".join(line.plain for line in page([conclude(pinned, [failed("latest")])], 100))
    assert "!! kubernetes.image  The image is not pinned" in failing
