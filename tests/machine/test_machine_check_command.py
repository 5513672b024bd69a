"""The output and exit status of `fathom machine check`."""

from __future__ import annotations

import json
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.machine import checks
from fathom.machine.checks import Host, examine, fix_script
from fathom.report.checks import print_checks
from tests.support.machine_check_hosts import cases, fake_host

CASES = cases()
COMMAND = ("machine", "check")
KEYS = {
    "id", "group", "title", "problem", "status", "observed", "reason", "why",
    "fix", "commands", "needs", "costs", "source", "weight", "subjects",
}  # fmt: skip
HOSTILE = "x'; touch /tmp/fathom-owned; `id` $(id)\n\x1b[31mrm -rf /\n# [bold]"


def run(monkeypatch: pytest.MonkeyPatch, host: Host, *arguments: str):
    monkeypatch.setattr(checks, "this_host", lambda: host)
    return CliRunner().invoke(app, [*COMMAND, *arguments])


def swapping(folder: Path) -> Host:
    return fake_host(folder, CASES["kernel.swappiness"]["host"])


def test_failures_come_first_with_why_fix_and_cost(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, swapping(tmp_path), "--only", "kernel")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("!! kernel.swappiness")
    assert "swappiness is 60" in done.stdout and "sysctl -w vm.swappiness=10" in done.stdout
    assert any(line.startswith("1 failed · ") for line in lines)


def test_nothing_failed_ends_with_zero(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, fake_host(tmp_path, {}), "--only", "gpu")
    assert done.exit_code == 0
    assert done.stdout.startswith("0 failed · 0 passed")


def test_all_lists_every_check(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, swapping(tmp_path), "--all")
    assert all(row.id in done.stdout for row in checks.checks())


def test_abstentions_say_why_without_being_asked(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, fake_host(tmp_path, {"gpus": [{}]}), "--only", "gpu.xid")
    assert done.exit_code == 0
    assert "gpu.xid: the kernel's log cannot be read: dmesg is not installed" in done.stdout


def test_json_contains_one_object_per_check_id(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, swapping(tmp_path), "--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert [*document] == [row.id for row in checks.checks()]
    assert all(set(value) == KEYS and value["id"] == name for name, value in document.items())
    failed = document["kernel.swappiness"]
    assert (failed["status"], failed["reason"]) == ("fail", None)
    assert (failed["observed"], failed["commands"]) == ("swappiness is 60", ["sysctl -w vm.swappiness=10"])
    unfit = document["gpu.mig"]
    assert (unfit["status"], unfit["observed"]) == ("not_applicable", "")
    assert unfit["reason"].startswith("no GPU")


def test_an_unknown_check_ends_with_two_and_one_line(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, swapping(tmp_path), "--only", "kernel.colour")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "'kernel.colour'" in done.stderr


def test_a_manifest_is_judged_instead_of_the_host(monkeypatch, tmp_path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: a}]}\n")
    done = run(monkeypatch, swapping(tmp_path), "--manifest", str(path), "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert {value["group"] for value in document.values()} == {"kubernetes"}
    assert document["kubernetes.image"]["observed"] == "Pod/p, container c: image a"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (
            "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: a}]}\n",
            1,
            "container c: image a",
        ),
        ("kind: Pod\nspec: 3\n", 2, "Standard input holds Pod/unnamed whose pod spec is missing"),
        ("", 2, "Standard input is not a manifest"),
    ],
)
def test_a_manifest_is_read_from_standard_input(monkeypatch, tmp_path, text, status, words) -> None:
    monkeypatch.setattr(checks, "this_host", lambda: swapping(tmp_path))
    done = CliRunner().invoke(app, [*COMMAND, "--manifest", "-"], input=text)
    assert done.exit_code == status
    assert words in " ".join(done.output.split())


def test_a_broken_manifest_ends_with_two(monkeypatch, tmp_path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("kind: [")
    done = run(monkeypatch, swapping(tmp_path), "--manifest", str(path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is not a manifest" in done.stderr


def test_the_help_explains_the_exit_status() -> None:
    text = " ".join(CliRunner().invoke(app, [*COMMAND, "--help"]).stdout.split())
    assert "0 if no check failed, 1 if one failed, 2 if the input cannot be used" in text


def syntax(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)


def test_the_script_of_all_failures_at_once_is_a_shell_script(tmp_path) -> None:
    failures = []
    for name, case in CASES.items():
        host = fake_host(tmp_path / name, case["host"])
        failures += examine(host, [row for row in checks.checks() if row.id == name])
    script = fix_script(failures)
    assert syntax(script).stderr == ""
    assert all(f"# {name}: " in script for name in CASES)
    assert "\nsysctl -w vm.swappiness=10\n" in script
    assert "\n# nvidia-smi -i 0 -pl 700\n" in script  # needs a decision
    assert "\n# echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0'" in script  # needs a reboot


def test_a_script_without_failures_says_so(tmp_path) -> None:
    script = fix_script(examine(fake_host(tmp_path, {})))
    assert "No check failed" in script
    assert syntax(script).returncode == 0


def test_the_script_is_printed_and_nothing_is_run(monkeypatch, tmp_path) -> None:
    done = run(monkeypatch, swapping(tmp_path), "--fix-script", "--only", "kernel.swappiness")
    assert done.exit_code == 1
    assert done.stdout.startswith("#!/bin/sh\n") and done.stdout.endswith("sysctl -w vm.swappiness=10\n")
    assert (tmp_path / "proc/sys/vm/swappiness").read_text() == "60\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Host:
    pod = {
        "kind": "Pod",
        "metadata": {"name": HOSTILE},
        "spec": {"containers": [{"name": HOSTILE, "image": HOSTILE}]},
    }
    environment = {
        "NCCL_ALGO": HOSTILE,
        "OMP_NUM_THREADS": HOSTILE,
        "TORCH_LOGS": HOSTILE,
        "PYTHONMALLOC": HOSTILE,
    }
    distributions = {
        "torch": "2.11.0+cu130",
        f"nvidia-{HOSTILE}-cu12": "1",
        "nvidia-y-cu12": HOSTILE,
        "nvidia-x-cu13": HOSTILE,
    }
    return fake_host(
        tmp_path,
        {"gpus": [{}], "environment": environment, "distributions": distributions, "manifest": pod},
    )


def test_hostile_values_stay_words_in_the_script(hostile: Host) -> None:
    results = examine(hostile)
    assert {"libraries.nccl_pinned", "libraries.cuda_mixed", "kubernetes.image"} <= {
        r.id for r in results if r.status == "fail"
    }
    script = fix_script(results)
    assert syntax(script).returncode == 0
    live = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert not [line for line in live if "touch" in line or "rm -rf" in line]


def test_hostile_values_stay_words_on_the_screen(hostile: Host) -> None:
    console = Console(file=StringIO(), width=90, color_system=None)
    print_checks(examine(hostile), console, every=True)
    shown = console.file.getvalue()
    assert "\x1b" not in shown and "[bold]" in shown


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_the_screen_keeps_its_width(width: int, tmp_path: Path) -> None:
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    print_checks(examine(fake_host(tmp_path, {"gpus": [{"PersistenceMode": 0}] * 8})), console, every=True)
    body = [
        line for line in console.file.getvalue().splitlines() if not line.lstrip().startswith(("http", "#"))
    ]
    assert max(map(len, body)) <= max(min(width, 120), 80) + 20  # commands and addresses are never cut


def test_a_plain_terminal_gets_plain_characters(tmp_path: Path) -> None:
    raw = open(tmp_path / "out", "w", encoding="ascii")  # noqa: PTH123, SIM115
    with raw:
        print_checks(
            examine(fake_host(tmp_path / "h", {"gpus": [{"Temperature": {"by": {0: 99}}}]})),
            Console(file=raw),
        )
    assert "99 oC" in (tmp_path / "out").read_text()
