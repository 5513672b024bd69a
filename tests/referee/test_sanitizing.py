"""compute-sanitizer's reports are read as it prints them; a stand-in for it takes part in proofs on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fathom.errors import BadInputError
from fathom.referee import Pair, Settings, Verdict, prove_pair, sanitizing
from fathom.referee.sanitizing import WITH_ERRORS, described, judged
from tests.support.paths import DATA
from tests.support.running import run_fathom

REPORTS = DATA / "sanitizer"
QUICK: dict[str, Any] = {"budget_s": 0, "block_s": 0.01, "patience_s": 60, "fresh": "fork", "bare": False}
PAIR = """
import numpy as np

def inputs(seed):
    return np.random.default_rng(seed).standard_normal((300, 300))
def variants(seed):
    return {"odd": np.random.default_rng(seed).standard_normal(17)}
def plain(x):
    return 2.0 * x
def tuned(x):
    if "--tool" in open("/proc/%d/cmdline" % __import__("os").getppid()).read() and x.ndim > 1:
        raise MemoryError("the large inputs are not for compute-sanitizer")
    return x + x
"""
# Stands in for compute-sanitizer: runs the program, then prints the report of the tool and side as its own.
STAND_IN = """#!{python}
import subprocess, sys
words = sys.argv[1:]
tool, log = words[words.index("--tool") + 1], words[words.index("--log-file") + 1]
program = words[words.index(sys.executable) :]
status = subprocess.run(program, stdin=subprocess.DEVNULL).returncode
side = "plain" if ":plain" in open(program[-1]).read() else "tuned"
from pathlib import Path
report = Path({folder!r}, f"{{side}}-{{tool}}")
text = (report if report.exists() else Path({reports!r}, f"clean-{{tool}}.txt")).read_text()
Path(log).write_text(text)
sys.exit(status or ({found} if " 0 errors" not in text and "(0 errors" not in text else 0))
"""


@pytest.mark.parametrize(
    ("tool", "name", "says"),
    [
        ("memcheck", "misaligned", "memcheck reported 1 invalid write of 4 bytes in kernel unaligned_kernel"),
        ("memcheck", "outside", "memcheck reported 3 invalid reads of 4 bytes in kernel vernier::bench::"),
        ("memcheck", "triton", "memcheck reported 1 invalid read of 4 bytes in kernel add_kernel_0d1d2d3"),
        (
            "racecheck",
            "race",
            "racecheck reported 1 race of a write at block_error.cu:41 and a read at block_error.cu:51"
            " in kernel sumKernel",
        ),
        (
            "racecheck",
            "warning",
            "racecheck warns of 1 race of a write at raceGroupBasic.cu:40 and a read at raceGroupBasic:46"
            " in kernel RAW",
        ),
    ],
)
def test_reports_are_put_into_words(tool: str, name: str, says: str) -> None:
    report = judged((REPORTS / f"{name}.txt").read_text(), WITH_ERRORS, "")
    assert not report.failed
    assert described(tool, list(report.errors)).startswith(says)


def test_other_errors_are_counted() -> None:
    text = "".join((REPORTS / f"{name}.txt").read_text() for name in ("misaligned", "outside"))
    errors = list(judged(text, WITH_ERRORS, "").errors)
    assert described("memcheck", errors).endswith("saxpyUnguarded, and 1 other error")


@pytest.mark.parametrize(
    ("text", "failed", "says"),
    [
        ((REPORTS / "no-call.txt").read_text(), "", "terminated before first instrumented API call"),
        ((REPORTS / "unsupported.txt").read_text(), "", "Device not supported"),
        ("", "", "it ended with status 255"),
        ((REPORTS / "clean-memcheck.txt").read_text(), "ValueError: no", "failed under it, ValueError: no"),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\n", "", "errors of an unknown form"),
    ],
)
def test_a_run_without_a_usable_report_gives_its_reason(text: str, failed: str, says: str) -> None:
    report = judged(text, 255, failed)
    assert not report.errors and says in report.failed


@pytest.mark.parametrize("name", ["clean-memcheck", "clean-racecheck"])
def test_clean_reports_have_no_errors(name: str) -> None:
    report = judged((REPORTS / f"{name}.txt").read_text(), 0, "")
    assert report == sanitizing.Report()


# Proofs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pair.py").write_text(PAIR)
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    about = {"python": sys.executable, "folder": str(tmp_path), "reports": str(REPORTS), "found": WITH_ERRORS}
    tool.write_text(STAND_IN.format(**about))
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(sanitizing, "why_not", lambda device: "")
    return tmp_path


def proven(folder: Path, *allow: str) -> Verdict:
    file = folder / "pair.py"
    roles = {role: f"{file}:{role}" for role in ("plain", "tuned", "inputs", "variants")}
    return prove_pair(Pair(**roles, allow=allow), Settings(sanitize=True, **QUICK))


def plant(folder: Path, side: str, tool: str, report: str) -> None:
    (folder / f"{side}-{tool}").write_text((REPORTS / f"{report}.txt").read_text())


@pytest.mark.programs
@pytest.mark.parametrize(
    ("tool", "report", "code"), [("memcheck", "outside", "invalid-access"), ("racecheck", "race", "race")]
)
def test_a_candidate_with_errors_is_refused_before_it_is_timed(
    folder: Path, tool: str, report: str, code: str
) -> None:
    plant(folder, "tuned", tool, report)
    verdict = proven(folder)
    assert verdict.refused and not verdict.timings
    assert [reason.code for reason in verdict.reasons] == [code]
    assert verdict.reasons[0].detail.startswith(f"{tool} reported ")


@pytest.mark.programs
def test_errors_that_are_not_the_candidates_do_not_refuse_it(folder: Path) -> None:
    for side in ("plain", "tuned"):
        plant(folder, side, "memcheck", "outside")
    plant(folder, "tuned", "racecheck", "library")
    verdict = proven(folder)
    assert not verdict.reasons and verdict.timings
    assert [reason.code for reason in verdict.shared] == ["invalid-access"]
    assert any("sgemm_32x32x32_NT_vec, which does not refuse it" in note for note in verdict.notes)


@pytest.mark.programs
def test_a_tool_that_cannot_run_leaves_a_note(folder: Path) -> None:
    plant(folder, "tuned", "memcheck", "no-call")
    verdict = proven(folder)
    assert not verdict.reasons and verdict.timings
    assert any(note.startswith("memcheck gave no result: Error: Target") for note in verdict.notes)


def test_commands_are_not_checked() -> None:
    with pytest.raises(BadInputError, match="leave --sanitize out"):
        prove_pair(Pair(plain=("true",), tuned=("true",)), Settings(sanitize=True))


def test_the_reason_is_given_where_nothing_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sanitizing.why_not("cpu") == "the pair runs on the CPU"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    assert sanitizing.why_not("cuda").endswith("is not installed")


@pytest.mark.programs
def test_the_option_on_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(PAIR)
    words = ("pair.py:plain", "pair.py:tuned", "--sanitize", "--budget", "0", "--fresh", "fork")
    done = run_fathom("prove", *words, cwd=tmp_path)
    assert "Not checked with compute-sanitizer: the pair runs on the CPU." in " ".join(done.stdout.split())
