"""Acts are in place in the program, and the witness sees the results that the program itself computes."""

from __future__ import annotations

import ctypes
import json
import platform
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from fathom.probe.knobs import SWITCHES, rounding
from tests.support.probe_programs import Run, launch

pytestmark = pytest.mark.programs
STEPS = 12


def witness(run: Run) -> dict:
    return json.loads(next(run.raw.glob("witness-*.json")).read_text())


def test_acts_are_put_in_place(tmp_path: Path) -> None:
    acts = {
        "optimizer": "fused",
        "loader": {"num_workers": 1, "persistent_workers": True},
        "channels_last": True,
        "autocast": "bfloat16",
        "garbage": "freeze",
        "matmul_precision": "medium",
    }
    run = launch(tmp_path, "settled.py", str(STEPS), plan={"depth": "surface", "acts": acts})
    seen = json.loads(run.out)
    expected = {"workers": 1, "fused": True, "channels_last": True, "dtype": "torch.bfloat16"}
    assert seen | expected | {"frozen": True, "precision": "medium"} == seen
    assert not [note for note in run.of("note") if "settings" in note["what"]]


def test_without_acts_the_program_is_as_it_is_and_its_results_are_recorded(tmp_path: Path) -> None:
    run = launch(tmp_path, "settled.py", str(STEPS), plan={"depth": "surface", "witness": STEPS})
    seen = json.loads(run.out)
    assert (seen["workers"], seen["fused"], seen["dtype"]) == (0, None, "torch.float32")
    arrays = witness(run)["arrays"]
    assert len(arrays["loss"]) == STEPS and arrays["loss"][-1] == pytest.approx(seen["loss"], rel=1e-6)
    assert set(arrays) == {"loss", "weights of optimizer 1"}


def test_rounding_at_random_moves_losses_by_rounding_errors_only(tmp_path: Path) -> None:
    losses = []
    for name, acts in (("a", {}), ("b", {"rounding": 0}), ("c", {"rounding": 1})):
        plan = {"depth": "surface", "witness": STEPS, "acts": acts}
        losses.append(witness(launch(tmp_path / name, "settled.py", str(STEPS), plan=plan))["arrays"]["loss"])
    assert losses[0] != losses[1] != losses[2]
    for other in losses[1:]:  # random numbers of the program that changed would change all digits
        assert other == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_operations_round_by_half_a_unit_and_exact_ones_do_not(dtype: str) -> None:
    import torch

    def results() -> list[tuple[torch.Tensor, torch.Tensor]]:
        torch.manual_seed(0)
        a = torch.rand(64, 64, dtype=torch.float64).to(getattr(torch, dtype)).requires_grad_()
        product = a @ a
        exact = [a.clone(), a[3:], a.t(), torch.cat([a, a]), a.relu(), torch.where(a > 0.5, a, -a)]
        product.logsumexp(0).sum().backward()
        return [*exact, product, product.exp(), torch.nn.functional.layer_norm(product, (64,)), a.grad]

    plain = results()
    with ThreadPoolExecutor(1) as other:  # the mode ends with its thread
        other.submit(rounding.install, SimpleNamespace(torch=torch), 0).result()
        rounded = other.submit(results).result()
    for before, after in zip(plain[:6], rounded[:6], strict=True):
        assert torch.equal(before, after)
    eps = torch.finfo(plain[0].dtype).eps
    product, seen = plain[6].detach().double(), rounded[6].detach().double()
    assert 0.1 < float((product != seen).double().mean()) < 0.95
    assert float(((seen - product) / product).abs().max()) <= eps
    for before, after in zip(plain[6:], rounded[6:], strict=True):
        assert not torch.equal(before, after)
        torch.testing.assert_close(after.double(), before.double(), rtol=200 * eps, atol=200 * eps)


def test_a_run_that_rounds_at_random_ends_with_its_results(tmp_path: Path) -> None:
    plan = {"depth": "surface", "witness": 4, "acts": {"rounding": 0}}
    run = launch(tmp_path, "settled.py", str(STEPS), plan=plan)
    assert (run.raw / "stop").exists()
    arrays = witness(run)["arrays"]
    assert len(arrays["loss"]) == 4 and len(arrays["weights of optimizer 1"]) > 100


def test_an_act_that_fails_is_noted_and_the_program_runs_on(tmp_path: Path) -> None:
    run = launch(
        tmp_path, "settled.py", "8", plan={"depth": "surface", "acts": {"optimizer": "no such form"}}
    )
    assert run.status != 0  # the program would run with options that its optimizer refuses
    run = launch(tmp_path / "b", "settled.py", "8", plan={"depth": "surface", "acts": {"unknown": 1}})
    assert run.status == 0
    assert [note["text"] for note in run.of("note") if "settings" in note["what"]] == [
        "unknown = 1: KeyError: 'unknown'"
    ]


def test_a_watched_loss_ends_the_program(tmp_path: Path) -> None:
    plan = {"depth": "surface", "witness": 4, "until": 100.0}
    run = launch(tmp_path, "settled.py", str(STEPS), plan=plan)
    assert (run.raw / "stop").exists() and witness(run)["reached_ns"] is not None


def test_settings_are_switched_on_and_off_and_leave_nothing_behind(tmp_path: Path) -> None:
    acts = {"autocast": "bfloat16", "matmul_precision": "medium"}
    switched = {"acts": acts, "warm": 2, "skip": 1, "every": 2, "groups": 2}
    run = launch(tmp_path, "settled.py", "60", plan={"depth": "surface", "switched": switched})
    blocks = json.loads(next(run.raw.glob("switched-*.json")).read_text())
    assert [on for on, _ in blocks] == [False, True, True, False] * 2 and all(ns > 0 for _, ns in blocks)
    assert (run.raw / "stop").exists()
    seen = json.loads(run.out)
    assert (seen["dtype"], seen["precision"]) == ("torch.float32", "highest")


def test_what_is_switched_on_is_off_again_and_made_once() -> None:
    import torch

    def within(name: str, value: object) -> tuple[object, object, torch.dtype]:
        with SWITCHES[name](SimpleNamespace(torch=torch), [module], value):
            return module.forward, module._compiled_call_impl, module(x).dtype

    module, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    cast, again = within("autocast", "bfloat16"), within("autocast", "bfloat16")
    assert cast[0] is again[0] and cast[2] == torch.bfloat16
    assert "forward" not in module.__dict__ and module(x).dtype == torch.float32
    compiled, again = within("compile", {"backend": "eager"}), within("compile", {"backend": "eager"})
    assert compiled[1] is again[1] is not None and module._compiled_call_impl is None


needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


def faults_of(size: int, times: int) -> int:
    """Return the page faults of filling blocks that are freed at once."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        block = library.malloc(size)
        ctypes.memset(block, 1, size)
        library.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def counted(size: int) -> list[int]:
    """Return the faults of ten blocks as the process is, then twice with the setting and without it."""
    faults_of(size, 3)  # glibc adapts its thresholds
    counts = [faults_of(size, 10)]
    for _ in range(2):
        with SWITCHES["freed_memory"](SimpleNamespace(), [], "keep"):
            faults_of(size, 1)
            counts.append(faults_of(size, 10))
        faults_of(size, 1)  # the first free returns what was kept
        counts.append(faults_of(size, 10))
    return counts


@needs_glibc
@pytest.mark.parametrize("size", [40 << 20, 24 << 20])  # above the largest threshold, and below it
def test_freed_memory_is_kept_while_the_setting_is_on(size: int) -> None:
    script = f"from tests.probe.test_knobs import counted; print(counted({size}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    off, *others = json.loads(done.stdout)
    on, again_off = others[::2], others[1::2]
    assert max(on) < 100
    assert again_off == pytest.approx([off, off], rel=0.1, abs=100)  # as it was


@needs_glibc
def test_freed_memory_is_left_to_an_environment_that_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    with (
        pytest.raises(ValueError, match="environment"),
        SWITCHES["freed_memory"](SimpleNamespace(), [], "keep"),
    ):
        pass
