"""TensorBoard reads back what was written, and Weights & Biases gets figures and a table."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

import fathom
from fathom.errors import BadInputError
from fathom.integrations import trackers
from fathom.integrations.figures import safe, summary
from tests.support.paths import EXAMPLES


@pytest.fixture(scope="module")
def sounding():
    return fathom.open(EXAMPLES / "train_gpt-h200.fathom.zip")


def test_figures_are_those_of_the_report(sounding):
    figures, result = summary(sounding), sounding.examine()
    assert figures["fathom/step_ms"] == result.step.clean_ms
    assert figures.get("fathom/mfu") == result.devices[0].utilisation.mfu
    assert figures.get("fathom/speed_of_light_ms") == result.devices[0].at_ceiling_ms
    ledger = [value for name, value in figures.items() if name.startswith("fathom/ledger/")]
    assert sum(ledger) == pytest.approx(sum(row.ms for row in result.devices[0].ledger))
    assert all(re.fullmatch(r"fathom/[\w/-]+", name) for name in figures)


def test_tensorboard_reads_figures_and_findings(sounding, tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("torch")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trackers.to_tensorboard(sounding, tmp_path, step=7)
    events = EventAccumulator(str(tmp_path)).Reload()
    figures = summary(sounding)
    assert set(events.Tags()["scalars"]) == set(figures)
    [event] = events.Scalars("fathom/step_ms")
    assert event.step == 7 and event.value == pytest.approx(figures["fathom/step_ms"])
    texts = events.Tags()["tensors"]
    assert {"fathom/verdict/text_summary", "fathom/findings/text_summary"} <= set(texts)
    [event] = events.Tensors("fathom/findings/text_summary")
    table = event.tensor_proto.string_val[0].decode().splitlines()
    assert len(table) == 2 + len(sounding.findings) and sounding.findings[0].title in table[2]


def test_wandb_gets_the_summary_and_a_table(sounding):
    pytest.importorskip("wandb")
    run = SimpleNamespace(summary={}, logged=[], log=lambda content: run.logged.append(content))
    trackers.to_wandb(sounding, run)
    assert run.summary["fathom/step_ms"] == sounding.step.clean_ms and run.summary["fathom/verdict"]
    [content] = run.logged
    assert [row[0] for row in content["fathom/findings"].data] == [f.id for f in sounding.findings]


def test_without_a_run_wandb_is_one_sentence(sounding):
    pytest.importorskip("wandb")
    with pytest.raises(BadInputError, match=r"wandb\.init"):
        trackers.to_wandb(sounding)


def test_texts_have_no_secrets_and_no_control_characters():
    assert "hunter2" not in safe("curl https://me:hunter2@host/") and "\x1b" not in safe("\x1b[2J")
