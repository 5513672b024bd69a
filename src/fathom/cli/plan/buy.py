"""`fathom plan buy` and `fathom plan shapes`: two machines for a workload, and sizes that suit a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from fathom.cli.console import examples, print_json

if TYPE_CHECKING:
    from fathom.planner.buying import AccountRow, Side
    from fathom.planner.hardware import Hardware
    from fathom.planner.training import Plan

BUY_EXAMPLES = examples(
    "fathom plan buy llama3-70b h100 b200 --weights fp8 --concurrency 64 --prices 2.5/h 4/h --tokens 1e12",
    "fathom plan buy llama3-8b h100 b200 --gpus 64 --batch 256 --prices 2.5/h 4/h --tokens 1e12",
    "fathom plan buy train.fathom h200 b200",
)
SHAPES_EXAMPLES = examples(
    "fathom plan shapes gpt2-xl --on h100", "fathom plan shapes config.json --on b200 --tp 8"
)


def buy(
    model: str = Argument(metavar="MODEL", help="A public model, a config.json, or a training's sounding."),
    first: str = Argument(metavar="SYSTEM", help="The machine that you have: a system or a machine file."),
    second: str = Argument(metavar="SYSTEM", help="The machine that you consider."),
    weights: str = Option("bf16", help="bf16, fp8, int8, fp4 or int4."),
    engine: str = Option("vllm", help="vllm, sglang, trtllm, nim."),
    prompt: int = Option(1024, min=1, help="Tokens of a prompt."),
    output: int = Option(1024, min=1, help="Tokens of an answer."),
    concurrency: int = Option(64, min=1, help="Requests in flight."),
    tp: int | None = Option(None, min=1, help="Tensor parallelism; the fastest layout by default."),
    batch: int | None = Option(None, min=1, help="Compare training with this batch instead of serving."),
    gpus: int | None = Option(
        None, min=1, help="GPUs of a training job; 8, or 1 for a sounding, by default."
    ),
    seq: int = Option(8192, min=1, help="Tokens in a sequence of training."),
    precision: str = Option("bf16", help="Matrix products of training: bf16, fp8, mxfp8, nvfp4."),
    prices: tuple[str, str] | None = Option(None, help="Prices of a GPU of both, like 2.5/h 4/h."),
    tokens: float | None = Option(None, help="Tokens of the whole workload, for days and the wait."),
    json: bool = Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare two machines for serving or training: time, energy, cooling and dollars per token."""
    from fathom.machine import parse_price
    from fathom.planner.buying import compare_sides
    from fathom.planner.training import is_sounding, system_called
    from fathom.report import print_machines

    chips = (system_called(first), system_called(second))
    paid: list[float | None] = [None, None]
    if prices:
        paid = [parse_price(text).amount for text in prices]
    if batch or gpus or is_sounding(model):
        job = {"batch": batch, "gpus": gpus, "seq": seq, "precision": precision, "tp": tp}
        sides, account = _trained(model, (first, second), paid, tokens, job)
    else:
        options: dict[str, Any] = {"engine_name": engine, "weights": weights, "prompt": prompt}
        options |= {"output": output, "concurrency": concurrency, "requests": 4 * concurrency}
        sides, account = _served(model, chips, paid, tokens, tp, options)
    comparison = compare_sides(sides[0], sides[1], chips, account)
    (print_json if json else print_machines)(comparison)


def _served(
    model: str,
    chips: tuple[Hardware, Hardware],
    paid: list[float | None],
    tokens: float | None,
    tp: int | None,
    options: dict[str, Any],
) -> tuple[list[Side], list[AccountRow]]:
    from fathom.planner.buying import fastest, serving_account, side_of

    plans = [fastest(model, chip, tp, **options) for chip in chips]
    sides = [side_of(plan, price, tokens) for plan, price in zip(plans, paid, strict=True)]
    return sides, serving_account(plans[0], plans[1])


def _trained(
    model: str, systems: tuple[str, str], paid: list[float | None], tokens: float | None, job: dict[str, Any]
) -> tuple[list[Side], list[AccountRow]]:
    from fathom.planner.buying import training_account, training_side

    plans = [_training(model, system, job) for system in systems]
    sides = [training_side(plan, price, tokens) for plan, price in zip(plans, paid, strict=True)]
    return sides, training_account(plans[0], plans[1])


def _training(model: str, system: str, job: dict[str, Any]) -> Plan:
    from fathom.planner.training import ask, is_sounding, plan_recorded, plan_training

    if not is_sounding(model):
        return plan_training(ask(model, system, **(job | {"gpus": job["gpus"] or 8})))
    from fathom.api import open

    recording = open(model)
    return plan_recorded(recording.on_more(job["gpus"] or 1, system, batch=job["batch"], tp=job["tp"]))


def shapes(
    model: str = Argument(metavar="MODEL", help="A public model, or a Hugging Face config.json."),
    on: str = Option("h100", help="A system, or a machine file."),
    tokens: int = Option(8192, min=1, help="Tokens that one GPU handles at once."),
    tp: int = Option(1, min=1, help="Tensor parallelism."),
    json: bool = Option(False, "--json", help="Print the advice as JSON."),
) -> None:
    """Find sizes of a model that waste tiles or waves of a chip, and the nearest that gain."""
    from fathom.planner.buying import advise
    from fathom.planner.training import system_called
    from fathom.planner.workload import model as model_called
    from fathom.report import print_shapes

    advice = advise(model_called(model), system_called(on), tokens, tp)
    (print_json if json else print_shapes)(advice)
