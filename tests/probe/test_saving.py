"""Time of saving: the outermost call, and the syncing of its file within the same step."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
import types

import pytest

pytest.importorskip("torch")

from fathom.probe.hooks.patches import Patches
from fathom.probe.hooks.saving import CALLS, Saving, install
from fathom.probe.imports import forget

MS = 1_000_000


class Recording:
    """Keeps waits, as a session does."""

    def __init__(self) -> None:
        self.step = 3
        self.waits: list[tuple[str, float]] = []

    def open_step(self) -> int:
        return self.step

    def wait(self, cause: str, start: int, end: int, detail: str) -> None:
        assert cause == "checkpoint"
        self.waits.append((detail, (end - start) / MS))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.waits]


@pytest.fixture
def saving():
    return Saving(Recording())


def write(data: bytes, file: object) -> None:
    time.sleep(0.01)
    file.write(data)


def test_a_sync_of_the_saved_file_counts_from_the_end_of_the_save(saving, tmp_path):
    with (tmp_path / "state").open("wb") as file, (tmp_path / "log").open("wb") as log:
        saving.call("save", write, b"x", file)
        time.sleep(0.02)  # flushing
        saving.sync("os.fsync", os.fsync, file.fileno())
        time.sleep(0.3)  # computing
        saving.sync("os.fsync", lambda _: None, log.fileno())
    (save, took), (_, own), (_, other) = saving._session.waits
    assert save == "save" and took >= 10 and own >= 20
    assert other < 300  # without the computation before it


def test_a_sync_in_a_step_without_a_save_is_no_checkpoint(saving, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        saving.sync("os.fsync", os.fsync, log.fileno())
        saving.call("save", write, b"x", io.BytesIO())  # a file of memory
        saving._session.step += 1
        saving.sync("os.fsync", os.fsync, log.fileno())
        saving._session.step -= 1
        saving.sync("os.fsync", os.fsync, log.fileno())
        other = threading.Thread(target=saving.sync, args=("os.fsync", os.fsync, log.fileno()))
        other.start()
        other.join()
    assert saving._session.names == ["save"]


def test_calls_within_a_save_count_once_and_errors_pass(saving, tmp_path):
    def checkpoint() -> str:
        with (tmp_path / "state").open("wb") as file:
            saving.call("torch.save", write, b"x", file)
            saving.sync("os.fsync", os.fsync, file.fileno())
        return "done"

    def failing() -> None:
        raise OSError("no space left")

    assert saving.call("Trainer._save_checkpoint", checkpoint) == "done"
    with pytest.raises(OSError, match="no space"):
        saving.call("torch.save", failing)
    assert saving._session.names == ["Trainer._save_checkpoint", "torch.save"]


def test_libraries_are_wrapped_when_imported_and_restored(monkeypatch, tmp_path):
    import numpy as np
    import torch

    trainer = types.ModuleType("transformers.trainer")

    class Trainer:
        def _save_checkpoint(self) -> None:
            torch.save({"a": torch.ones(3)}, tmp_path / "a.pt")
            np.save(tmp_path / "b.npy", np.ones(3))

    trainer.Trainer = Trainer
    monkeypatch.setitem(sys.modules, "transformers.trainer", trainer)
    recording, patches = Recording(), Patches()
    before = torch.save, np.save, os.fsync, Trainer._save_checkpoint
    try:
        install(recording, patches)
        Trainer()._save_checkpoint()
        np.savez(tmp_path / "c.npz", a=np.ones(3))
        assert recording.names == ["transformers.trainer.Trainer._save_checkpoint", "numpy.savez"]
        assert set(CALLS) > {"numpy", "safetensors.torch", "accelerate.accelerator"}
    finally:
        patches.undo()
        forget()
    assert before == (torch.save, np.save, os.fsync, Trainer._save_checkpoint)
    assert np.load(tmp_path / "b.npy").tolist() == [1.0, 1.0, 1.0]
