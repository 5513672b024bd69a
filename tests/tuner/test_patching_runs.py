"""A real program: its settings are proven elsewhere, written into its source, and in effect when it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from fathom.report import print_tuned
from fathom.tuner import Knob, Patch, Tuned, catalogue
from fathom.tuner.knobs import Value
from fathom.tuner.patching.making import IN_PLACE, Patching
from fathom.tuner.running import Run, Runner, Steps
from fathom.tuner.sandbox import Scratch

pytestmark = pytest.mark.programs
pytest.importorskip("torch")

DATA = """
from torch.utils.data import DataLoader, Dataset
import torch

class Images(Dataset):
    def __len__(self): return 60
    def __getitem__(self, i): return torch.full((3, 8, 8), float(i % 5)), i % 2

def make_loader(workers=0):
    return DataLoader(
        Images(),
        4,
        num_workers=workers,  # none so far
    )
"""
TRAIN = '''
"""A program of two files."""
import gc
import json
import os
import sys

import torch
from torch import nn

from data import make_loader


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def epoch(self):
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    trainer = Trainer(model, make_loader())
    for _ in range(2):
        trainer.epoch()
    print(json.dumps({
        "workers": trainer.loader.num_workers,
        "persistent": trainer.loader.persistent_workers,
        "fused": trainer.optimizer.defaults["fused"],
        "channels_last": model[0].weight.is_contiguous(memory_format=torch.channels_last),
        "compiled": model._compiled_call_impl is not None,
        "frozen": gc.get_freeze_count() > 0,
        "precision": torch.get_float32_matmul_precision(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "arguments": sys.argv[1:],
    }))


if __name__ == "__main__":
    main()
'''
CHOICE: dict[str, Value] = {
    "loader": Value("two", acts={"loader": {"num_workers": 2, "persistent_workers": True}}),
    "optimizer": Value("fused", acts={"optimizer": "fused"}),
    "garbage": Value("freeze", acts={"garbage": "freeze"}),
    "matmul-precision": Value("medium", acts={"matmul_precision": "medium"}),
    "channels-last": Value("on", acts={"channels_last": True}),
    "autocast": Value("bf16", acts={"autocast": "bfloat16"}),
    "threads": Value("one", environment={"OMP_NUM_THREADS": "1"}),
}


def values(**more: Value) -> list[tuple[Knob, Value]]:
    knobs = {knob.id: knob for knob in catalogue()}
    return [(knobs[name], value) for name, value in (CHOICE | more).items()]


def same(_: Run) -> str:
    return ""


def patching(folder: Path, differs: Any = same, in_place: bool = False) -> Patching:
    folder.joinpath("train.py").write_text(TRAIN)
    folder.joinpath("data.py").write_text(DATA)
    place = folder / "train.tune"
    place.mkdir()
    scratch = Scratch(folder, place / "scratch", in_place)
    command = [sys.executable, "train.py"]
    return Patching(Runner(command, scratch, place, Steps(1, 8, 4)), scratch, 120.0, differs)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_patch_puts_the_settings_in_effect(folder: Path) -> None:
    patch = patching(folder).patch(values(), folder / "train.tune" / "settings.patch")
    assert patch.verified and set(patch.knobs) == set(CHOICE) - {"autocast", "threads"}
    assert "torch.autocast" in patch.left["autocast"] and "launch line" in patch.left["threads"]
    assert patch.launch == f"OMP_NUM_THREADS=1 {sys.executable} train.py"
    assert folder.joinpath("train.py").read_text() == TRAIN  # only copies have run with it
    subprocess.run(["git", "apply", patch.file or ""], check=True)
    done = subprocess.run(patch.launch, shell=True, capture_output=True, check=True)
    expected = {"workers": 2, "persistent": True, "fused": True, "channels_last": True, "compiled": False}
    more = {"frozen": True, "precision": "medium", "threads": "1", "arguments": []}
    assert json.loads(done.stdout) == expected | more


def test_a_setting_that_the_program_undoes_is_left_out(folder: Path) -> None:
    made = patching(folder)
    late = TRAIN.replace("    torch.manual_seed(0)", '    torch.set_float32_matmul_precision("highest")')
    folder.joinpath("train.py").write_text(late)
    patch = made.patch(values(), folder / "settings.patch")
    assert patch.verified and "optimizer" in patch.knobs
    assert "not in effect" in patch.left["matmul-precision"]
    assert '"medium"' not in folder.joinpath("settings.patch").read_text()


def test_other_results_or_a_crash_leave_no_patch(folder: Path) -> None:
    made = patching(folder, lambda run: "loss differs" if len(run.arrays["loss"]) == 4 else "no losses")
    patch = made.patch(values(), folder / "settings.patch")
    assert patch.file is None and not patch.knobs and not folder.joinpath("settings.patch").exists()
    assert "loss differs" in patch.left["optimizer"]
    wrong = Value("wrong", acts={"loader": {"num_workers": -1}})
    patch = made.patch(values(loader=wrong), folder / "settings.patch")
    assert patch.file is None and "num_workers" in patch.left["loader"]


def test_without_a_copy_the_program_is_not_run_with_it(folder: Path) -> None:
    patch = patching(folder, in_place=True).patch(values(), folder / "settings.patch")
    assert folder.joinpath("train.py").read_text() == TRAIN
    assert patch.file and not patch.verified and patch.note == IN_PLACE


def test_settings_outside_of_the_code_need_no_run(folder: Path) -> None:
    threads = [(knob, value) for knob, value in values() if knob.id == "threads"]
    made = patching(folder)
    made.runner.run = made.runner.located = None  # type: ignore[assignment,method-assign]
    patch = made.patch(threads, folder / "settings.patch")
    assert patch.file is None and patch.launch.startswith("OMP_NUM_THREADS=1 ")


def test_the_report_says_how_to_apply_it_and_the_json_has_it() -> None:
    patch = Patch("a.tune/settings.patch", ["loader"], {"autocast": "a reason"}, "A=1 python a.py", True)
    result = Tuned(["python", "a.py"], [], None, [], 600, 60, 30, 10, patch=patch)
    console = Console(file=StringIO(), width=120)
    print_tuned(result, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for line in (
        "code       git apply a.tune/settings.patch",
        "launch     A=1 python a.py",
        "autocast: a reason",
    ):
        assert line in text
    assert msgspec.json.decode(msgspec.json.encode(result))["patch"]["left"] == {"autocast": "a reason"}


def test_the_report_of_a_search_on_an_h200_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = Path(__file__).parents[1] / "data" / "h200" / "tuned-gpt.json"
    result = msgspec.json.decode(known.read_bytes(), type=Tuned)
    result.file = str(tmp_path / "a.tune" / "settings.toml")
    result.tried[1].status, result.tried[1].why = (
        "too slow",
        "ended after 37 s of compiling",
    )
    console = Console(file=StringIO(), width=90)
    print_tuned(result, console)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert any(
        line.startswith("compile: whole with CUDA graphs ") and line.endswith("59.1 %") for line in lines
    )
    assert "predicted by framework-not-compiled, host-launch-bound · may change: rounding" in lines
    assert "model.compile(), or model = torch.compile(model)" in lines
    assert any(line.startswith("apply      fathom run --settings a.tune/settings.toml -- ") for line in lines)
    assert any(line.endswith(result.tried[1].why) for line in lines)
    assert f"note       {result.notes[0]}" in lines  # each note on a line for itself
