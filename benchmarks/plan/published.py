"""Published training runs as jobs, with the reason for each row that a plan cannot express."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fathom.planner.hardware import Hardware, hardware
from fathom.planner.training import Job, Layouts, Stack, stack
from fathom.planner.training.layout import RECOMPUTE, SHARDING
from fathom.planner.workload import Attention, Block, Dense, Model, convention, flops_per_token, model

DATA = Path(__file__).parents[3] / "shared" / "validation" / "training.csv"
_PRECISIONS = {
    **dict.fromkeys(("fp16", "bf16", "bf16/fp16", "amp_bf16"), "bf16"),
    **dict.fromkeys(("amp_fp8", "fp8", "fp8-cs"), "fp8"),
    **dict.fromkeys(("mxfp8", "fp8-mx"), "mxfp8"),
    "nvfp4": "nvfp4",
}
_SHARDINGS = {
    "DDP": "ddp",
    "distributed-optimizer": "zero1",
    "ZeRO-3": "fsdp",
    "FSDP2": "fsdp",
    "FSDP-FULL_SHARD": "fsdp",
    "FSDP-SHARD_GRAD_OP": "zero2",
    "Megatron-FSDP": "fsdp",
}
_CONVENTIONS = {
    "HFU": "hfu",
    "Megatron model": "model",
    "Megatron-Bridge": "model",
    "NeMo": "full",
    "model FLOPs": "full",
}


@dataclass(frozen=True)
class Run:
    """One row: the job, its layout, and the step time and peak memory that were published."""

    id: str
    source: str
    model: Model
    system: Hardware
    stack: Stack
    job: Job
    layout: Layouts
    step_s: float
    memory_gib: float | None
    overlaps_experts: bool

    @property
    def group(self) -> tuple[str, str, bool]:
        """Return what rows of a GPU type are grouped by: stack, precision, experts or not."""
        return self.stack.kin, self.job.precision, self.model.is_moe


def read(path: Path = DATA) -> tuple[list[Run], dict[str, str]]:
    """Return the rows of trust A that a plan can express, and the reason for each other row by id."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    reasons = {row["id"]: why for row in rows if (why := _why_not(row))}
    return [_run(row) for row in rows if row["id"] not in reasons], reasons


def _why_not(row: dict[str, str]) -> str | None:
    if row["trust"] != "A":
        return f"trust {row['trust']}, not A"
    if not row["tp"]:
        return "its layout is not published"
    if not row["micro_batch"] and not row["id"].startswith("titan"):
        return "its micro-batch is not published"
    if "real routing" in row["notes"]:
        return "its tokens are routed unevenly, by a balance that is not published"
    if "untuned" in row["notes"]:
        return "its source calls it an untuned port, three times slower than the next release"
    return None


def _number(row: dict[str, str], key: str, default: int = 1) -> int:
    return int(float(row[key])) if row[key] else default


def _run(row: dict[str, str]) -> Run:
    system, shape = hardware(row["gpu"]), _model(row)
    layout, batch = _layout(row), _number(row, "global_batch")
    precision = _PRECISIONS[row["precision"]]
    job = Job(_number(row, "seq_len"), batch, _number(row, "gpus"), precision)
    memory = float(row["peak_mem_gib"]) if row["peak_mem_gib"] else None
    overlaps = "EP overlap" in row["notes"]
    seconds = _seconds(row, shape, job)
    return Run(row["id"], row["source"], shape, system, _stack(row), job, layout, seconds, memory, overlaps)


def _model(row: dict[str, str]) -> Model:
    if row["arch"].startswith("moe"):
        return model(row["model"])
    layers, hidden, heads, groups = (_number(row, key) for key in ("layers", "hidden", "heads", "kv_heads"))
    gated = "llama" in row["model"]
    block = Block(layers, Attention(heads, groups, hidden // heads), Dense(_number(row, "ffn"), gated))
    tied = not gated and "nemotron" not in row["model"]
    return Model(row["model"], hidden, _number(row, "vocab"), (block,), tied)


def _layout(row: dict[str, str]) -> Layouts:
    tp, pp, cp, ep = (_number(row, key) for key in ("tp", "pp", "cp", "ep"))
    dp = _number(row, "gpus") // (tp * pp * cp)
    vpp = _number(
        row, "vpp", 12 if "12 in v25.05" in row["notes"] else 2 if "interleaved" in row["notes"] else 1
    )
    # torchtitan splits the local batch into one micro-batch for each stage unless told otherwise.
    micro = _number(row, "micro_batch", max(1, _number(row, "global_batch") // (dp * pp * vpp)))
    recompute = RECOMPUTE.get(row["recompute"] or "none", RECOMPUTE["selective"])
    sharding = SHARDING[_SHARDINGS[row["sharding"]]]
    sp = not _stack(row).no_sp
    return Layouts(dp, tp, pp, vpp, cp, ep, micro, sharding, recompute=recompute, sp=sp)


def _stack(row: dict[str, str]) -> Stack:
    name, source = row["id"], row["source"]
    if name.startswith("mosaic"):
        return stack("fsdp" if row["precision"].startswith("amp") else "fsdp-2022")
    if name.startswith("sc21t2-zero3"):
        return stack("deepspeed-2021")
    if name.startswith(("sc21", "mtnlg")):
        return stack("megatron-2021")
    if name.startswith("titan"):
        recent = "2025" in source
        return stack(
            "torchtitan-eager" if "eager" in row["notes"] else "torchtitan" if recent else "torchtitan-2024"
        )
    dated = re.search(r"(?:archive\.md |@v|NeMo )(\d\d)\.(\d\d)", source)
    return stack(f"megatron-{dated[1]}.{dated[2]}" if dated else "megatron-25.08")


def _seconds(row: dict[str, str], shape: Model, job: Job) -> float:
    """Return the published step time, or that of the tokens per second or FLOP/s."""
    if row["step_time_s"]:
        return float(row["step_time_s"])
    tokens = job.batch * job.seq / job.gpus
    if row["tokens_per_s_per_gpu"]:
        return tokens / float(row["tokens_per_s_per_gpu"])
    counted = next(name for begin, name in _CONVENTIONS.items() if row["flops_convention"].startswith(begin))
    return tokens * flops_per_token(shape, job.seq, convention(counted)) / float(row["tflops_per_gpu"]) / 1e12


def as_table(runs: list[Run]) -> dict[str, Any]:
    """Return the rows by GPU type."""
    table: dict[str, list[Run]] = {}
    for run in runs:
        table.setdefault(run.system.name, []).append(run)
    return table
