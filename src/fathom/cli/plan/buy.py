"""`fathom plan buy` and `fathom plan shapes`: two machines for a workload, and sizes that suit a chip."""

from __future__ import annotations

from typing import Any

from typer import Argument, Option

from fathom.cli.console import examples, print_json

BUY_EXAMPLES = examples(
    "fathom plan buy llama3-70b h100 b200 --weights fp8 --concurrency 64 --prices 2.5/h 4/h --tokens 1e12",
)
SHAPES_EXAMPLES = examples(
    "fathom plan shapes gpt2-xl --on h100", "fathom plan shapes config.json --on b200 --tp 8"
)


def buy(
    model: str = Argument(metavar="MODEL", help="A public model, or a Hugging Face config.json."),
    first: str = Argument(metavar="SYSTEM", help="The machine that you have: a system or a machine file."),
    second: str = Argument(metavar="SYSTEM", help="The machine that you consider."),
    weights: str = Option("bf16", help="bf16, fp8, int8, fp4 or int4."),
    engine: str = Option("vllm", help="vllm, sglang, trtllm, nim."),
    prompt: int = Option(1024, min=1, help="Tokens of a prompt."),
    output: int = Option(1024, min=1, help="Tokens of an answer."),
    concurrency: int = Option(64, min=1, help="Requests in flight."),
    tp: int | None = Option(None, min=1, help="Tensor parallelism; the most tokens per GPU by default."),
    prices: tuple[str, str] | None = Option(None, help="Prices of a GPU of both, like 2.5/h 4/h."),
    tokens: float | None = Option(None, help="Output tokens of the whole workload, for days and the wait."),
    json: bool = Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare two machines for a serving workload: time, energy, cooling and dollars per token."""
    from fathom.machine import parse_price
    from fathom.planner.buying import compare_sides, fastest, side_of
    from fathom.planner.training import system_called

    chips = (system_called(first), system_called(second))
    paid = [parse_price(text).amount for text in prices] if prices else [None, None]
    options: dict[str, Any] = {"engine_name": engine, "weights": weights, "prompt": prompt, "output": output}
    options |= {"concurrency": concurrency, "requests": 4 * concurrency}
    plans = [fastest(model, chip, tp, **options) for chip in chips]
    sides = [side_of(plan, price, tokens) for plan, price in zip(plans, paid, strict=True)]
    comparison = compare_sides(sides[0], sides[1], chips)
    if json:
        print_json(comparison)
    else:
        from fathom.report import print_machines

        print_machines(comparison)


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

    advice = advise(model_called(model), system_called(on), tokens, tp)
    if json:
        print_json(advice)
    else:
        from fathom.report import print_shapes

        print_shapes(advice)
