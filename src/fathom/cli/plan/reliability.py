"""`fathom plan reliability`: failures, checkpoints, goodput, wall time and cost of a long run."""

from __future__ import annotations

from typer import Argument, Option

from fathom.cli.console import examples, print_json

EXAMPLES = examples(
    "fathom plan reliability llama3.1-405b --on h100 --gpus 16384 --days 54 --price 2.5/h",
    "fathom plan reliability llama3-70b --on b200 --gpus 2048 --days 20 --checkpoint sync --storage "
    "'50 GB/s' --spares 4",
)


def reliability(
    model: str = Argument(metavar="MODEL", help="A public model, or a Hugging Face config.json."),
    on: str = Option("h100", help="A system."),
    gpus: int = Option(..., min=1, help="GPUs of the job."),
    days: float = Option(..., help="Productive days: those without any failure."),
    checkpoint: str = Option("async", help="sync, async or memory."),
    storage: str = Option("100 GB/s", help="Bandwidth of checkpoint storage, for the whole job."),
    interval: float | None = Option(None, help="Seconds between checkpoints; the best by default."),
    detection: float = Option(120.0, min=0, help="Seconds until a failure is noticed."),
    restart: float = Option(480.0, min=0, help="Seconds to restart, without reading the checkpoint."),
    spares: int | None = Option(None, min=0, help="Hosts that stand by; enough by default."),
    repair: float = Option(24.0, min=0, help="Hours until a failed host is back."),
    mtbf: float | None = Option(None, help="Hours between failures of the job, if you know them."),
    log: str | None = Option(None, help="Published log of failures: llama-3.1-405b or rsc-1."),
    price: str | None = Option(None, help="Price of a GPU, like 2.50/h."),
    explain: bool = Option(False, "--explain", help="Derive the goodput line by line."),
    json: bool = Option(False, "--json", help="Print the plan as JSON."),
) -> None:
    """Plan a long run: how often it fails, when to checkpoint, its goodput, wall time and cost."""
    from fathom.machine import parse_price
    from fathom.planner.hardware import hardware, quantity
    from fathom.planner.reliability import Run, explained, failures_of, plan_reliability
    from fathom.planner.workload import model as model_called
    from fathom.report import print_reliability_plan

    chip = hardware(on).name
    run = Run(
        gpus, days, model_called(model).parameters, failures_of(chip, log, mtbf, gpus), checkpoint,
        quantity(storage, "B/s").value, interval, detection, restart, spares, repair,
        parse_price(price).amount if price else None,
    )  # fmt: skip
    plan = plan_reliability(run)
    if json:
        print_json(plan)
    elif explain:
        print("\n".join(explained(plan)))
    else:
        print_reliability_plan(plan)
