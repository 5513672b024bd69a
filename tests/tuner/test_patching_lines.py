"""Lines about the process run once, before what they are about; optimizers get their form."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from fathom.tuner.patching.source import RefusedError
from fathom.tuner.patching.writing import written
from tests.tuner.traced import Traced, apply


class FakeTorch(ModuleType):
    """Stands in for torch: keeps the calls and assignments of its settings in `events`."""

    def __init__(self, events: list[str]) -> None:
        super().__init__("torch")
        self.__dict__.update(backends=self, cuda=self, cudnn=self, nn=self, DataLoader=None)
        self.__dict__["events"] = events

    def __setattr__(self, name: str, value: object) -> None:
        if name == "benchmark":
            self.events.append(f"{name} = {value}")

    def __getattr__(self, name: str) -> object:
        if not name.startswith(("set_", "enable_")):
            raise AttributeError(name)
        return lambda *given: self.events.append(f"{name}{given}")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(seen))
    monkeypatch.setattr(gc, "collect", lambda: seen.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", lambda *given: seen.append(f"threshold{given}"))
    return seen


def patched(folder: Path, text: str, acts: dict, events: list[str]) -> str:
    before = Traced(folder, events=events).run(textwrap.dedent(text).encode())
    program = before.program()
    changed = apply(program, written(program, acts))
    events.clear()
    Traced(folder, events=events).run(changed)
    return changed.decode()


HEADS = {
    "it": '"""Trains."""\n\nfrom __future__ import annotations\n\nimport torch\nfrom json import dump\n\n',
    "without torch": "#!/usr/bin/env python\n# a comment\nimport json\n\n\n",
    "without imports": '"""A program."""\n',
    "nothing": "",
    "late": "import json\n\nx = 1\nimport torch as th, torch\n",
}
START = {
    "matmul_precision": "high",
    "cudnn_benchmark": True,
    "attention": "flash",
    "garbage": 50000,
    "flush_denormal": True,
}


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_settings_of_the_process_come_first(head: str, tmp_path: Path, events: list[str]) -> None:
    patched(tmp_path, head + "AdamW([]).step()", START, events)
    assert events[-2:] == ["optimizer", "step"]
    assert sorted(events[:-2]) == [
        "benchmark = True",
        "enable_cudnn_sdp(False,)",
        "enable_flash_sdp(True,)",
        "enable_math_sdp(True,)",
        "enable_mem_efficient_sdp(False,)",
        "set_float32_matmul_precision('high',)",
        "set_flush_denormal(True,)",
        "threshold(50000, 20, 100)",
    ]


def test_a_module_is_imported_once(tmp_path: Path, events: list[str]) -> None:
    changed = patched(tmp_path, "import json\n\nAdamW([]).step()\n", START, events)
    assert changed.startswith("import gc\nimport json\nimport torch\n\ntorch.set_float32_matmul_precision")
    assert changed.count("import torch\n") == changed.count("import gc\n") == 1


@pytest.mark.parametrize("text", ["torch = 1\n", "from other import torch\n", "def f(torch): pass\n"])
def test_a_name_that_is_something_else_is_refused(
    text: str, tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "other", FakeTorch(events))
    sys.modules["other"].__dict__["torch"] = None
    program = Traced(tmp_path).run((text + "AdamW([]).step()").encode()).program()
    with pytest.raises(RefusedError, match="'torch' is something else"):
        written(program, {"cudnn_benchmark": True})


LOOPS = {
    "at the first level": """
        optimizer = AdamW([])
        for epoch in range(2):
            for batch in range(2):
                optimizer.step()
        """,
    "in functions": """
        def epoch(optimizer):
            for batch in range(2):
                optimizer.step()
        def main():
            optimizer = AdamW([])
            epochs = 0
            while epochs < 2:
                epoch(optimizer)
                epochs += 1
        main()
        """,
    "with a loop around the construction": """
        def train():
            optimizer = AdamW([])
            for batch in range(4): optimizer.step()
        for fold in range(1):
            train()
        """,
    "in a comprehension's function": """
        def main():
            optimizer = AdamW([])
            for epoch in range(2):
                [optimizer.step() for batch in range(2)]
        main()
        """,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=list(LOOPS))
def test_objects_are_frozen_once_before_the_first_step(text: str, tmp_path: Path, events: list[str]) -> None:
    changed = patched(tmp_path, text, {"garbage": "freeze"}, events)
    assert events == ["optimizer", "collect", "freeze", *["step"] * 4], changed


def test_without_a_loop_nothing_is_frozen(tmp_path: Path) -> None:
    program = Traced(tmp_path).run(b"AdamW([]).step()\n").program()
    with pytest.raises(RefusedError, match="loop of the steps"):
        written(program, {"garbage": "freeze"})


def test_optimizers_get_their_form_unless_they_have_chosen_another(tmp_path: Path) -> None:
    text = """
        a = AdamW([1], 0.1)
        b = AdamW([2], fused=False)
        c = AdamW([3], foreach=True)
        class Mine(AdamW):
            def __init__(self, weights):
                super().__init__(weights, lr=2)
        Mine([4])
        """
    before = Traced(tmp_path).run(textwrap.dedent(text).encode())
    program = before.program()
    after = Traced(tmp_path).run(apply(program, written(program, {"optimizer": "fused"})))
    assert [new["fused"] for new in after.optimizers] == [True, True, None, True]
    assert [new["lr"] for new in after.optimizers] == [0.1, 1, 1, 2]
    assert after.optimizers[2]["foreach"] is True


def test_an_optimizer_that_chooses_at_run_time_is_refused(tmp_path: Path) -> None:
    text = b"for form in (None, True): AdamW([], foreach=form)\n"
    program = Traced(tmp_path).run(text).program()
    with pytest.raises(RefusedError, match="in another form"):
        written(program, {"optimizer": "fused"})


def test_paths_are_relative_to_the_folder_in_a_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    program = Traced(tmp_path / "part").run(b"AdamW([])\n").program()
    assert apply(program, written(program, {"optimizer": "fused"})) == b"AdamW([], fused=True)\n"
