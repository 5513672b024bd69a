"""Summaries of a sounding in TensorBoard and Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fathom.api import Sounding
from fathom.errors import BadInputError
from fathom.integrations.figures import PREFIX, rows_of_findings, summary, verdict

COLUMNS = ("id", "finding", "saves ms", "remedy")


def to_tensorboard(sounding: Sounding, writer: Any, step: int = 0) -> None:
    """Write figures, verdict and findings to TensorBoard.

    `writer` is a `SummaryWriter`, or the folder of a new one. `step` is the step of the training at which
    they are shown. Raises BadInputError if tensorboard is missing.
    """
    made = _writer(writer) if isinstance(writer, str | Path) else writer
    for name, value in summary(sounding).items():
        made.add_scalar(name, value, step)
    made.add_text(f"{PREFIX}/verdict", verdict(sounding), step)
    made.add_text(f"{PREFIX}/findings", _markdown(sounding), step)
    made.close() if made is not writer else made.flush()


def _writer(folder: str | Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInputError("TensorBoard is not installed; run `pip install tensorboard`.") from None
    return SummaryWriter(str(folder))


def _markdown(sounding: Sounding) -> str:
    rows = [
        (name, title, "" if gain is None else f"{gain:.3g}", next(iter(remedy.splitlines()), ""))
        for name, title, gain, remedy in rows_of_findings(sounding)
    ]
    lines = [COLUMNS, ("---",) * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def to_wandb(sounding: Sounding, run: Any = None) -> None:
    """Write figures to the summary of a run of Weights & Biases, and findings as a table.

    `run` is the active run by default. Raises BadInputError if wandb is missing or no run is active.
    """
    try:
        import wandb
    except ImportError:
        raise BadInputError("Weights & Biases is not installed; run `pip install wandb`.") from None
    run = wandb.run if run is None else run
    if run is None:
        raise BadInputError("No run of Weights & Biases is active; call wandb.init() first.")
    run.summary.update({**summary(sounding), f"{PREFIX}/verdict": verdict(sounding)})
    rows = [list(row) for row in rows_of_findings(sounding)]
    run.log({f"{PREFIX}/findings": wandb.Table(columns=list(COLUMNS), data=rows)})
