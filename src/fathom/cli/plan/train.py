"""`fathom plan train`: the best layout of a training job, with its ledger, memory and cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from fathom.cli.console import examples, page_path, print_json

if TYPE_CHECKING:
    from fathom.planner.training import Plan

EXAMPLES = examples(
    "fathom plan train llama3-70b --on h100 --gpus 256 --batch 1024 --seq 8192 --tokens 1e12 --price 2.5/h",
    "fathom plan train config.json --on b200 --gpus 64 --batch 512 --precision fp8 --tp 4 --explain",
    "fathom plan train llama3-8b --on machine.json --gpus 8 --batch 64 --launch launch/ --html plan.html",
    "fathom plan train llama3-8b --gpus 64 --batch 256 --sample-time '8 ms' --workers 4 --checkpoint async",
    "fathom plan train train.fathom --gpus 64",
)


def train(
    model: str = Argument(metavar="MODEL", help="A public model, a Hugging Face config.json, or a sounding."),
    on: str | None = Option(
        None, help="A system, or a machine file; h100, or a sounding's machine, by default."
    ),
    gpus: int = Option(8, min=1, help="GPUs of the job."),
    batch: int | None = Option(
        None, min=1, help="Sequences per step, over all GPUs; required unless MODEL is a sounding."
    ),
    seq: int | None = Option(None, min=1, help="Tokens in a sequence; 8192 by default."),
    precision: str | None = Option(None, help="Dtype of matmuls: bf16 (default), fp8, mxfp8, nvfp4."),
    stack: str | None = Option(None, help="Software: megatron (default), torchtitan, megatron-26.02 …"),
    objective: str | None = Option(None, "--for", help="Best for time (default), dollars or energy."),
    tokens: float | None = Option(None, help="Tokens of the whole run, for days and cost."),
    price: str | None = Option(None, help="Price of a GPU, like 2.50/h."),
    memory: str | None = Option(None, help="Usable memory of a GPU, like 76 GB."),
    within: float | None = Option(
        None, min=0, metavar="HOURS", help="Longest run for --for dollars or energy."
    ),
    assume: list[str] = Option([], metavar="FIGURE=VALUE", help="Replace a figure, like 'hbm=4.2 TB/s'."),
    tp: int | None = Option(None, min=1, help="Tensor parallelism."),
    pp: int | None = Option(None, min=1, help="Pipeline stages."),
    vpp: int | None = Option(None, min=1, help="Interleaved chunks of a stage."),
    cp: int | None = Option(None, min=1, help="Context parallelism."),
    ep: int | None = Option(None, min=1, help="Expert parallelism."),
    micro: int | None = Option(None, min=1, help="Sequences in a micro-batch."),
    sharding: str | None = Option(None, help="ddp, zero1, zero2 or fsdp."),
    shard: int | None = Option(None, min=1, help="Ranks that share one copy of the parameters (HSDP)."),
    recompute: str | None = Option(None, help="none, selective or full."),
    parameters: float | None = Option(None, help="Parameters of a sounding's program, if not recorded."),
    workload: Path | None = Option(
        None, metavar="FILE", help="YAML with the figures of loading and checkpoints below."
    ),
    sample_bytes: str | None = Option(None, help="Bytes that a sample reads from storage, like 110 kB."),
    sample_time: str | None = Option(None, help="Time in which a core makes a sample, like 8 ms."),
    workers: int | None = Option(
        None, min=0, help="Loader workers of each loading rank; 8, or as recorded, by default."
    ),
    storage: str | None = Option(None, help="Bandwidth of a host to its storage, like 2 GB/s."),
    checkpoint: str | None = Option(None, help="Plan checkpoints: sync, async or memory."),
    checkpoint_every: int | None = Option(
        None, min=1, metavar="STEPS", help="Steps between checkpoints; the best by default."
    ),
    one_writer: bool = Option(False, "--one-writer", help="Rank 0 writes the checkpoint alone."),
    mtbf: float | None = Option(None, help="Hours between failures of the job, if you know them."),
    explain: bool = Option(False, "--explain", help="Derive the step line by line."),
    all_: bool = Option(False, "--all", help="Print scaling and every assumption."),
    json: bool = Option(False, "--json", help="Print the plan as JSON."),
    html: Path | None = Option(None, help="Write front, ledger and sensitivity as a page."),
    launch: Path | None = Option(None, metavar="FOLDER", help="Write launch files of the layout."),
) -> None:
    """Search every valid layout of a training job, and plan the best one."""
    from fathom.planner.training import is_sounding
    from fathom.report import print_plan

    options = {
        "seq": seq, "precision": precision, "stack": stack, "objective": objective, "tokens": tokens,
        "price": price, "memory": memory, "within": within, "sharding": sharding, "recompute": recompute,
        "tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "micro": micro, "shard": shard,
        "parameters": parameters, "workload": workload, "sample_bytes": sample_bytes,
        "sample_time": sample_time, "workers": workers, "storage": storage, "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every, "one_writer": one_writer or None, "mtbf": mtbf,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    planned = _of_recording if is_sounding(model) else _of_model
    plan, derived = planned(model, on, gpus=gpus, batch=batch, assume=assume, **given)
    if html:
        from fathom.report import save_plan

        save_plan(plan, page_path(html))
    if launch:
        from fathom.planner.training import write_launch_files

        write_launch_files(plan, launch)
    if json:
        print_json(plan)
    elif explain:
        print("\n".join(derived()))
    else:
        print_plan(plan, all_rows=all_)


def _of_model(model: str, on: str | None, **options: Any) -> tuple[Plan, Callable[[], list[str]]]:
    from fathom.planner.training import ask, derivation, plan_training

    question = ask(model, on or "h100", **options)
    plan = plan_training(question)
    return plan, lambda: derivation(question, plan)


def _of_recording(sounding: str, on: str | None, **options: Any) -> tuple[Plan, Callable[[], list[str]]]:
    from fathom.api import open
    from fathom.planner.training import plan_recorded, recorded_derivation

    job = open(sounding).on_more(on=on, **options)
    plan = plan_recorded(job)
    return plan, lambda: recorded_derivation(job, plan)
