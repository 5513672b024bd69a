"""Readings that are missing, damaged, huge or not allowed abstain; older kernels are understood too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fathom.machine.checks import checks, chosen, examine
from fathom.machine.checks.host import LARGEST, Host
from fathom.machine.files import UnreadableError, format_list, parse_list
from tests.support.machine_check_hosts import cases, fake_host, merged

CASES = cases()
WITH_FILES = [name for name, case in CASES.items() if case["host"].get("files")]
DAMAGE = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "words": b"this is not what the kernel writes\n" * 3,
    "huge number": b"9" * 5000,
    "negative": b"-1\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", WITH_FILES)
def test_damaged_files_raise_nothing(name: str, damage: str, tmp_path: Path) -> None:
    host = fake_host(tmp_path, CASES[name]["host"])
    for path in CASES[name]["host"]["files"]:
        (tmp_path / path).write_bytes(DAMAGE[damage])
    (result,) = examine(host, chosen([name]))
    assert result.observed or result.reason
    assert "unforeseen" not in (result.reason or ""), result.reason


@pytest.mark.parametrize("name", WITH_FILES)
def test_folders_where_files_should_be_raise_nothing(name: str, tmp_path: Path) -> None:
    host = fake_host(tmp_path, {**CASES[name]["host"], "files": {}})
    for path in CASES[name]["host"]["files"]:
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
    (result,) = examine(host, chosen([name]))
    assert "unforeseen" not in (result.reason or ""), result.reason


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"x" * (LARGEST + 1))
    with pytest.raises(UnreadableError, match="larger than"):
        Host(root=tmp_path).text("huge")


def test_endless_and_missing_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    with pytest.raises(UnreadableError, match="not a regular file"):
        Host(root=tmp_path).text("endless")
    with pytest.raises(UnreadableError, match="cannot be read"):
        Host(root=tmp_path).text("missing")


def test_files_below_the_size_limit_are_read_completely(tmp_path: Path) -> None:
    content = b"0123456789" * 50_000
    (tmp_path / "long").write_bytes(content)
    assert Host(root=tmp_path).octets("long") == content


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(sorted({n for check in checks() for n in check.using.get("names", [])})),
        st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    )
)
def test_no_environment_breaks_a_check(tmp_path_factory, environment: dict[str, str]) -> None:
    host = fake_host(tmp_path_factory.getbasetemp(), {"gpus": [{}, {}], "environment": environment})
    for result in examine(host, chosen(["libraries"])):
        assert "unforeseen" not in (result.reason or ""), (result.id, result.reason)


@given(st.frozensets(st.integers(0, 500)))
def test_lists_of_cpus_survive_the_round_trip(cpus: frozenset[int]) -> None:
    assert parse_list(format_list(cpus)) == cpus


@pytest.mark.parametrize("text", ["", "none", "a-b", "1-2-3", "-4", "0x3", "٣"])
def test_malformed_cpu_lists_are_empty(text: str) -> None:
    assert parse_list(text) == frozenset()


def test_a_range_cannot_fill_the_memory() -> None:
    assert len(parse_list("0-999999999")) < 100_000


OLD_GROUP = {"proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n"}


@pytest.mark.parametrize("place", ["sys/fs/cgroup/cpu/docker/abc", "sys/fs/cgroup/cpu"])
def test_the_first_version_of_control_groups_is_understood(place: str, tmp_path: Path) -> None:
    """Inside a container its group lies at the root of the hierarchy, outside below it."""
    files = {**OLD_GROUP, f"{place}/cpu.cfs_quota_us": "200000\n", f"{place}/cpu.cfs_period_us": "100000\n"}
    (result,) = examine(
        fake_host(tmp_path, {"affinity": "0-7", "files": files}), chosen(["container.cpu_quota"])
    )
    assert (result.status, result.observed) == ("fail", "a quota of 2.0 CPUs, while programs see 8")


@pytest.mark.parametrize("text", ["max 100000\n", "-1\n"])
def test_without_a_quota_the_check_does_not_apply(text: str, tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": text}
    (result,) = examine(fake_host(tmp_path, {"files": files}), chosen(["container.cpu_quota"]))
    assert result.status == "not_applicable"


def test_a_control_group_path_cannot_leave_its_hierarchy(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/../../secret\n", "secret/cpu.max": "100000 100000\n"}
    (result,) = examine(fake_host(tmp_path, {"files": files}), chosen(["container.cpu_quota"]))
    assert result.status == "not_applicable"


def test_without_omp_threads_a_quota_below_the_cpus_fails(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}
    (result,) = examine(
        fake_host(tmp_path, {"affinity": "0-31", "files": files}), chosen(["libraries.omp_threads"])
    )
    assert result.status == "fail"
    assert result.commands == ["export OMP_NUM_THREADS=4"]


def test_more_threads_than_cpus_fail(tmp_path: Path) -> None:
    host = fake_host(tmp_path, {"affinity": "0-3", "environment": {"OMP_NUM_THREADS": 64}})
    (result,) = examine(host, chosen(["libraries.omp_threads"]))
    assert result.status == "fail"


def test_two_allocator_settings_that_differ_fail(tmp_path: Path) -> None:
    environment = {
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
    }
    (result,) = examine(
        fake_host(tmp_path, {"gpus": [{}], "environment": environment}), chosen(["libraries.allocator"])
    )
    assert (result.status, "two conflicting settings" in result.observed) == ("fail", True)


def test_a_share_of_the_gpu_left_to_programs_fails_mps(tmp_path: Path) -> None:
    host = fake_host(tmp_path, {"gpus": [{}], "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}})
    (result,) = examine(host, chosen(["gpu.mps"]))
    assert result.status == "fail"


def test_older_gpus_retire_pages(tmp_path: Path) -> None:
    host = fake_host(tmp_path, {"gpus": [{"RemappedRows": None, "RetiredPagesPendingStatus": 1}]})
    (result,) = examine(host, chosen(["gpu.memory_repair"]))
    assert (result.status, result.observed) == ("fail", "GPU 0: a page retirement is pending")


def test_older_switches_are_known_by_their_daemon(tmp_path: Path) -> None:
    """A100: the driver does not report a fabric state, but lists the switches."""
    files = {"proc/driver/nvidia-nvswitch/devices/0000:01:00.0": "x", "proc/77/comm": "bash\n"}
    description = {"gpus": [{}], "files": files}
    (result,) = examine(fake_host(tmp_path / "a", description), chosen(["gpu.fabric_manager"]))
    assert (result.status, result.observed) == ("fail", "nv-fabricmanager is not running")
    running = merged(description, {"files": {"proc/78/comm": "nv-fabricmanager\n"}})
    (result,) = examine(fake_host(tmp_path / "b", running), chosen(["gpu.fabric_manager"]))
    assert result.status == "pass"


def test_administrators_may_read_counters(tmp_path: Path) -> None:
    case = merged(
        CASES["gpu.counters"]["host"], {"files": {"proc/self/status": "CapEff:\t000001ffffffffff\n"}}
    )
    (result,) = examine(fake_host(tmp_path, case), chosen(["gpu.counters"]))
    assert result.status == "pass"


def test_drivers_before_535_name_their_reasons_otherwise(tmp_path: Path) -> None:
    gpu = {"CurrentClocksEventReasons": None, "CurrentClocksThrottleReasons": 0x40}
    (result,) = examine(fake_host(tmp_path, {"gpus": [gpu]}), chosen(["gpu.throttling"]))
    assert (result.status, result.observed) == ("fail", "GPU 0: hardware thermal slowdown")
