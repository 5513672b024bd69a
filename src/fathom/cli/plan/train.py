"""`fathom plan train`: the best layout of a training job, with its ledger, memory and cost."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from fathom.cli.console import examples, print_json

EXAMPLES = examples(
    "fathom plan train llama3-70b --on h100 --gpus 256 --batch 1024 --seq 8192 --tokens 1e12 --price 2.5/h",
    "fathom plan train config.json --on b200 --gpus 64 --batch 512 --precision fp8 --tp 4 --explain",
    "fathom plan train llama3-8b --on machine.json --gpus 8 --batch 64 --launch launch/ --html plan.html",
)


def train(
    model: str = Argument(metavar="MODEL", help="A public model, or a Hugging Face config.json."),
    on: str = Option("h100", help="A system, or a machine file of `fathom machine measure`."),
    gpus: int = Option(8, min=1, help="GPUs of the job."),
    batch: int = Option(..., min=1, help="Sequences in a step, over all GPUs."),
    seq: int = Option(8192, min=1, help="Tokens in a sequence."),
    precision: str = Option("bf16", help="Type of matrix products: bf16, fp8, mxfp8, nvfp4."),
    stack: str = Option("megatron", help="Software, like torchtitan or megatron-26.02."),
    objective: str = Option("time", "--for", help="Best for time, dollars or energy."),
    tokens: float | None = Option(None, help="Tokens of the whole run, for days and cost."),
    price: str | None = Option(None, help="Price of a GPU, like 2.50/h."),
    memory: str | None = Option(None, help="Usable memory of a GPU, like 76 GB."),
    within: float | None = Option(None, metavar="HOURS", help="Longest run for --for dollars or energy."),
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
    explain: bool = Option(False, "--explain", help="Derive the step line by line."),
    all_: bool = Option(False, "--all", help="Print scaling and every assumption."),
    json: bool = Option(False, "--json", help="Print the plan as JSON."),
    html: Path | None = Option(None, help="Write front, ledger and sensitivity as a page."),
    launch: Path | None = Option(None, metavar="FOLDER", help="Write launch files of the layout."),
) -> None:
    """Search every valid layout of a training job, and plan the best one."""
    from fathom.planner.training import ask, plan_training

    degrees = {"tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "micro": micro, "shard": shard}
    question = ask(
        model, on, gpus=gpus, batch=batch, seq=seq, precision=precision, stack=stack, objective=objective,
        tokens=tokens, price=price, memory=memory, within=within, assume=assume, sharding=sharding,
        recompute=recompute, **degrees,
    )  # fmt: skip
    plan = plan_training(question)
    if html:
        from fathom.cli.console import page_path
        from fathom.report import save_plan

        save_plan(plan, page_path(html))
    if launch:
        from fathom.planner.training import write_launch_files

        write_launch_files(plan, launch)
    if json:
        print_json(plan)
    elif explain:
        from fathom.planner.training import derivation

        print("\n".join(derivation(question, plan)))
    else:
        from fathom.report import print_plan

        print_plan(plan, all_rows=all_)
