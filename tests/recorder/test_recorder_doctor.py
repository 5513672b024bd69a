"""`fathom doctor` on machines and Pythons that tests make up."""

from __future__ import annotations

import json
import sys

import pytest

from fathom.recorder.doctor import Answers, ask_python, examine_host
from tests.support.running import run_fathom

GPU = {"name": "H200", "uuid": "GPU-1"}
HOST = {"container": "docker", "virtual_machine": None}
GOOD = {
    "python": "3.12.3",
    "executable": "/usr/bin/python3",
    "torch": "2.11.0+cu130",
    "cuda_built": "13.0",
    "cuda": True,
    "kineto": True,
    "cupti": True,
    "cupti_python": "13.4.0",
    "devices": ["H200"],
}


def diagnose(tmp_path, *, gpus=(GPU,), environment=None, **answers):
    machine = {
        "gpus": list(gpus),
        "why_no_gpu": None if gpus else "no driver",
        "versions": {"driver": "580"},
        "host": HOST,
    }
    record = Answers(**{**GOOD, **answers})
    return examine_host("python", environment or {}, tmp_path, lambda _: record, machine)


def check(diagnosis, what):
    [result] = [check for check in diagnosis.checks if check.what == what]
    return result


def test_a_good_machine_records_surface_and_timeline(tmp_path):
    diagnosis = diagnose(tmp_path)
    assert (diagnosis.depths["surface"], diagnosis.depths["timeline"]) == ("", "")
    assert diagnosis.depths["counters"] == ""
    assert json.loads(json.dumps(diagnosis.as_dict()))["checks"]


@pytest.mark.parametrize(
    ("answers", "what", "surface"),
    [
        ({"torch": None}, "torch", True),
        ({"torch": "1.13.1"}, "torch", False),
        ({"torch": "2.3.9"}, "torch", False),
        ({"python": "3.9.18"}, "Python", False),
        ({"error": "python failed: boom"}, "Python", False),
        ({"kineto": False}, "Kineto", True),
        ({"cupti": False}, "CUPTI", True),
        ({"cuda": False}, "CUDA", True),
        ({"cuda": False, "cuda_built": None}, "CUDA", True),
    ],
)
def test_missing_requirements_are_named_with_a_fix(tmp_path, answers, what, surface):
    diagnosis = diagnose(tmp_path, **answers)
    result = check(diagnosis, what)
    assert result.ok is False and result.fix
    assert result.found in diagnosis.depths["timeline"]
    assert (diagnosis.depths["surface"] == "") is surface


def test_without_a_gpu_nothing_of_cuda_is_needed(tmp_path):
    diagnosis = diagnose(tmp_path, gpus=(), cuda=False, cupti=False, cuda_built=None)
    assert diagnosis.depths["timeline"] == ""
    assert "no driver" in check(diagnosis, "NVML").found


@pytest.mark.parametrize(("value", "word"), [("0", "are readable"), ("1", "are readable")])
def test_root_may_always_read_counters(tmp_path, monkeypatch, value, word):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    params = tmp_path / "proc/driver/nvidia/params"
    params.parent.mkdir(parents=True)
    params.write_text(f"Foo: 3\nRmProfilingAdminOnly: {value}\n")
    assert word in check(diagnose(tmp_path), "counters' permission").found


def test_other_users_need_the_modules_permission(tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    params = tmp_path / "proc/driver/nvidia/params"
    params.parent.mkdir(parents=True)
    params.write_text("RmProfilingAdminOnly: 1\n")
    diagnosis = diagnose(tmp_path)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check(diagnosis, "counters' permission").found
    assert diagnosis.depths["timeline"] == ""
    assert "NVreg_RestrictProfilingToAdminUsers=0" in diagnosis.depths["counters"]
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/status").write_text("CapEff:\t000001ffffffffff\n")
    assert diagnose(tmp_path).depths["counters"] == ""


@pytest.mark.parametrize(
    ("gpus", "answers", "words"),
    [
        ((), {}, "there is no GPU (no driver)"),
        (({**GPU, "mig": True},), {}, "MIG"),
        ((GPU,), {"cuda_built": "12.8"}, "CUDA 12.8"),
        ((GPU,), {"cupti_python": None}, "pip install --no-deps cupti-python"),
        ((GPU,), {"cupti_python": "13.0.1"}, "cupti-python 13.0.1 has no PM sampling"),
        ((GPU,), {"kineto": False}, "without Kineto"),
    ],
)
def test_why_counters_cannot_be_sampled(tmp_path, gpus, answers, words):
    diagnosis = diagnose(tmp_path, gpus=gpus, **answers)
    assert words in diagnosis.depths["counters"]
    if answers.get("kineto", True):
        assert diagnosis.depths["timeline"] == ""


def test_another_start_up_hook_is_named(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("")
    result = check(diagnose(tmp_path, environment={"PYTHONPATH": str(tmp_path)}), "PYTHONPATH")
    assert str(tmp_path) in result.found


def test_an_invalid_python_is_an_answer():
    assert "did not answer" in ask_python("/no/such/python").error
    assert "failed" in ask_python("false").error


@pytest.mark.programs
def test_this_python_has_torch():
    torch = pytest.importorskip("torch")
    answers = ask_python(sys.executable)
    assert answers.torch == torch.__version__
    assert answers.kineto is torch.profiler.kineto_available()


def test_the_command_says_it_for_people_and_for_programs(tmp_path):
    (tmp_path / "py").write_text(f"#!/bin/sh\necho '{json.dumps({**GOOD, 'kineto': False})}'\n")
    (tmp_path / "py").chmod(0o755)
    shown = run_fathom("doctor", "--python", tmp_path / "py", cwd=tmp_path)
    assert shown.returncode == 0
    assert "timeline   does not work: torch was built without Kineto" in shown.stdout
    assert "fix: use an official build of torch" in shown.stdout
    as_json = json.loads(run_fathom("doctor", "--json", "--python", tmp_path / "py", cwd=tmp_path).stdout)
    assert as_json["depths"]["surface"] == ""
