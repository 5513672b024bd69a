"""Read-ahead is judged once for each NFS file system that this process can see."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.machine.checks import chosen, examine
from tests.support.machine_check_hosts import fake_host

LOCAL = "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
DATA = "61 22 0:52 / /data rw,relatime shared:30 - nfs4 10.0.0.5:/data rw,vers=4.2,rsize=1048576\n"
BOUND = "62 22 0:52 /cache /root/.cache rw,relatime shared:30 - nfs4 10.0.0.5:/data rw,vers=4.2\n"
HOME = "63 22 0:53 / /home/a\\040user ro - nfs filer:/home ro,vers=3\n"
HIDES_DATA = "64 61 0:60 / /data rw - tmpfs tmpfs rw\n"


def judged(folder: Path, mounts: str, **ahead: str):
    """The result on a host with these mounts; `ahead` is the content of read_ahead_kb by minor number."""
    files = {f"sys/class/bdi/0:{minor[1:]}/read_ahead_kb": text for minor, text in ahead.items()}
    host = fake_host(folder, {"files": {"proc/self/mountinfo": mounts, **files}})
    (result,) = examine(host, chosen(["kernel.nfs_read_ahead"]))
    return result


@pytest.mark.parametrize(
    ("ahead", "status"), [("0", "fail"), ("128", "fail"), ("511", "fail"), ("512", "pass"), ("15360", "pass")]
)
def test_half_a_mebibyte_is_enough(ahead: str, status: str, tmp_path: Path) -> None:
    assert judged(tmp_path, LOCAL + DATA, _52=f"{ahead}\n").status == status


def test_a_file_system_mounted_twice_is_judged_once(tmp_path: Path) -> None:
    result = judged(tmp_path, LOCAL + DATA + BOUND, _52="128\n")
    assert [subject["subject"] for subject in result.subjects] == ["/data"]
    assert result.commands[0] == "echo 1024 > /sys/class/bdi/0:52/read_ahead_kb"


def test_only_the_mount_with_too_little_is_named(tmp_path: Path) -> None:
    result = judged(tmp_path, LOCAL + DATA + HOME, _52="15360\n", _53="128\n")
    assert result.observed == "/home/a user: 128 KiB of read-ahead"
    assert result.commands[0] == "echo 1024 > /sys/class/bdi/0:53/read_ahead_kb"


def test_an_unreadable_mount_hides_no_other(tmp_path: Path) -> None:
    result = judged(tmp_path, LOCAL + HOME + DATA, _52="128\n")
    assert (result.status, result.observed) == ("fail", "/data: 128 KiB of read-ahead")
    assert [subject["status"] for subject in result.subjects] == ["abstained", "fail"]


@pytest.mark.parametrize("text", [None, "", "many\n"])
def test_a_setting_that_cannot_be_read_gives_the_reason(text: str | None, tmp_path: Path) -> None:
    result = judged(tmp_path, DATA, _52=text)
    assert result.status == "abstained"
    assert (result.reason or "").startswith("/data: /sys/class/bdi/0:52/read_ahead_kb ")


@pytest.mark.parametrize("mounts", [None, "", "no mounts here\n"])
def test_mounts_that_cannot_be_read_give_the_reason(mounts: str | None, tmp_path: Path) -> None:
    result = judged(tmp_path, mounts)
    assert result.status == "abstained"
    assert "/proc/self/mountinfo" in (result.reason or "")


@pytest.mark.parametrize("mounts", [LOCAL, LOCAL + DATA + HIDES_DATA])
def test_without_a_visible_nfs_mount_the_check_does_not_apply(mounts: str, tmp_path: Path) -> None:
    result = judged(tmp_path, mounts, _52="128\n")
    assert (result.status, result.reason) == ("not_applicable", "no NFS file system is mounted")
