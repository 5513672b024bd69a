"""Callbacks of trainers record some steps by themselves, log their figures, and never end a training."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

import fathom

STEPS = 40


class Logger:
    """Keeps what a trainer logs."""

    def __init__(self):
        self.logged = []

    def log_metrics(self, metrics, step):
        self.logged.append((metrics, step))


def train(step, count=STEPS + 10):
    for _ in range(count):
        time.sleep(0.002)
        fathom.step(samples=8)
        step()


def lightning(folder, **more):
    module = pytest.importorskip("fathom.integrations.lightning", exc_type=ImportError)
    options = {"depth": "surface", "settle": 3, "step_on": "mark", **more}
    callback = module.FathomCallback(folder / "a.fathom", STEPS, **options)
    trainer = SimpleNamespace(global_step=0, is_global_zero=True, loggers=[Logger()])
    return callback, trainer


def test_lightning_logs_the_figures_of_the_recorded_steps(tmp_path):
    callback, trainer = lightning(tmp_path)

    def step():
        trainer.global_step += 1
        for _ in range(2):  # the second batch only accumulates
            callback.on_train_batch_end(trainer, None, None, None, 0)

    callback.on_train_start(trainer, None)
    train(step)
    callback.on_train_end(trainer, None)
    [(figures, at)] = trainer.loggers[0].logged
    assert at == STEPS and figures["fathom/step_ms"] == callback.sounding.step.clean_ms > 2
    assert figures["fathom/samples_per_s"] > 0 and "fathom/mfu" not in figures


def test_other_ranks_record_nothing(tmp_path):
    callback, trainer = lightning(tmp_path)
    trainer.is_global_zero = False
    callback.on_train_start(trainer, None)
    callback.on_train_end(trainer, None)
    assert callback.sounding is None and not (tmp_path / "a.fathom").exists()


def test_a_sounding_that_exists_is_an_error_on_one_line_and_the_training_goes_on(tmp_path, capsys):
    callback, trainer = lightning(tmp_path)
    (tmp_path / "a.fathom").mkdir()
    callback.on_train_start(trainer, None)
    callback.on_train_batch_end(trainer, None, None, None, 0)
    callback.on_train_end(trainer, None)
    assert "already exists" in capsys.readouterr().err and callback.sounding is None


def test_a_training_that_fails_leaves_its_recording(tmp_path):
    callback, trainer = lightning(tmp_path)
    callback.on_train_start(trainer, None)
    train(lambda: None, 20)
    callback.on_exception(trainer, None, KeyboardInterrupt())
    callback.on_train_end(trainer, None)
    assert callback.sounding.manifest.ended == "interrupted"


def test_hugging_face_keeps_the_figures_in_the_history_of_logs(tmp_path):
    pytest.importorskip("transformers")
    from fathom.integrations.hugging_face import FathomCallback

    callback = FathomCallback(tmp_path / "a.fathom", STEPS, depth="surface", settle=3, step_on="mark")
    state = SimpleNamespace(global_step=0, is_world_process_zero=True, log_history=[])

    def step():
        state.global_step += 1
        callback.on_step_end(None, state, None)

    callback.on_train_begin(None, state, None)
    train(step)
    callback.on_train_end(None, state, None)
    [figures] = state.log_history
    assert figures["step"] == STEPS and figures["fathom/step_ms"] > 2
