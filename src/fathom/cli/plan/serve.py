"""`fathom plan serve`: latencies of a serving engine under a load, and the fewest GPUs that meet limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from fathom.cli.console import examples, grouped, page_path, print_json

if TYPE_CHECKING:
    from fathom.planner.serving import Question, ServingPlan

EXAMPLES = examples(
    "fathom plan serve llama3-70b --on h100 --weights fp8 --rate 8 --ttft 1s --tpot 50ms --price 2.5/h",
    "fathom plan serve llama3-70b --gpus 16 --concurrency 64",
    "fathom plan serve deepseek-v3 --on b200 --engine sglang --weights fp8 --tp 8 --ep 8 "
    "--concurrency 64 --explain",
    "fathom plan serve config.json --on machine.json --rate 4 --load-test test.json",
    "fathom plan serve config.json --on machine.json --rate 4 --measured test.json",
)


@dataclass
class Traffic:
    """When requests arrive, how long they are, and the latencies that they may have."""

    prompt: int = Option(1024, min=1, help="Tokens of a prompt.")
    output: int = Option(1024, min=1, help="Tokens of an answer.")
    spread: float = Option(0.0, min=0, max=0.95, help="Spread of lengths: 0.2 is 0.8 to 1.2 times.")
    concurrency: int | None = Option(None, min=1, help="Requests in flight, a new one for each that ends.")
    rate: float | None = Option(None, help="Requests per second.")
    arrival: str = Option("poisson", help="With --rate: poisson, constant or bursty.")
    trace: Path | None = Option(None, help="File of lines: arrival in seconds, prompt, output tokens.")
    requests: int | None = Option(
        None,
        min=1,
        max=10_000,
        help="Requests that are simulated.  [default: as many as show the steady state]",
    )
    hit: float = Option(0.0, min=0, max=1, help="Share of prompts found in the prefix cache.")
    ttft: str | None = Option(
        None, help="Limit of the time to the first token, like 1s or 500ms; a number alone is in ms."
    )
    tpot: str | None = Option(
        None, help="Limit of the time per output token, like 50ms; a number alone is in ms."
    )
    share: float = Option(0.99, min=0, max=1, help="Share of requests that must meet the limits.")


@dataclass
class Server:
    """The engine and its settings."""

    engine_name: str = Option("vllm", "--engine", help="vllm, sglang, trtllm, nim, trtllm-bench.")
    weights: str = Option("bf16", help="bf16, fp8, int8, fp4 or int4.")
    kv: str | None = Option(None, help="Type of the KV cache; fp8 with fp8 and fp4 weights, else bf16.")
    max_batch: int | None = Option(None, min=1, help="Sequences of an iteration.")
    max_tokens: int | None = Option(None, min=1, help="Tokens of an iteration (chunked prefill).")
    drafted: int = Option(0, min=0, help="Tokens drafted in an iteration (speculative decoding).")
    acceptance: float = Option(0.0, min=0, max=1, help="Probability that a drafted token is accepted.")


@dataclass
class Fleet:
    """The GPUs and what they cost."""

    objective: str = Option("gpus", "--for", help="Fewest gpus, dollars or watts.")
    gpus: int | None = Option(
        None,
        min=1,
        help="Most GPUs of the fleet. Without limits: the fewest that keep up with --rate or --trace, else "
        "the most tokens per second per GPU.",
    )
    tp: int | None = Option(
        None, min=1, help="Tensor parallelism of a replica; default: the fewest GPUs that keep up."
    )
    dp: int = Option(1, min=1, help="Data parallelism of attention within a replica.")
    ep: int | None = Option(None, min=1, help="GPUs that experts are spread over.")
    replicas: int | None = Option(
        None, min=1, help="Replicas; default: the fewest that meet the limits or keep up."
    )
    prefill_replicas: int = Option(0, min=0, help="Replicas for prefill alone (disaggregation).")
    disaggregate: bool = Option(
        False, "--disaggregate", help="Search replicas for prefill and for decode that meet the limits."
    )
    routing: str = Option("least-loaded", help="least-loaded or round-robin.")
    price: str | None = Option(None, help="Price of a GPU, like 2.50/h.")
    assume: list[str] = Option([], metavar="FIGURE=VALUE", help="Replace a figure, like 'hbm=4.2 TB/s'.")


@dataclass
class Result:
    """The files that are written, and the form of the answer."""

    load_test: Path | None = Option(
        None, metavar="FILE", help="Write a load test whose result --measured reads."
    )
    html: Path | None = Option(None, help="Write fleets, latencies, ledger and sensitivity as a page.")
    launch: bool = Option(False, "--launch", help="Print the commands that start vLLM and SGLang.")
    explain: bool = Option(False, "--explain", help="Derive every figure line by line.")
    json: bool = Option(False, "--json", help="Print the plan as JSON.")


@grouped
def serve(
    traffic: Traffic,
    server: Server,
    fleet: Fleet,
    result: Result,
    model: str = Argument(metavar="MODEL", help="A public model, or a Hugging Face config.json."),
    on: str = Option("h100", help="A system, or a machine file of `fathom machine measure`."),
    measured: Path | None = Option(None, metavar="FILE", help="Recalibrate with the result of a load test."),
) -> None:
    """Plan the serving of a model: TTFT, TPOT and cost by simulation, and the fewest GPUs for limits."""
    from fathom.planner.serving import ask_serving, plan_serving
    from fathom.planner.training import system_called

    options = asdict(traffic) | asdict(server) | asdict(fleet)
    question = ask_serving(model, system_called(on), measured=measured, **options)
    _deliver(question, plan_serving(question), result)


def _deliver(question: Question, plan: ServingPlan, result: Result) -> None:
    """Write the files that are asked for, and print the plan."""
    from fathom.planner.serving import explained, planned_test
    from fathom.report import print_serving_plan, save_text

    if result.load_test:
        save_text(planned_test(question, plan), result.load_test)
    if result.html:
        from fathom.report import save_serving_plan

        save_serving_plan(plan, page_path(result.html))
    if result.json:
        print_json(plan)
    elif result.explain:
        print("\n".join(explained(question, plan)))
    elif result.launch:
        named = (f"# {name}\n{command}" for name, command in plan.launch.items())
        print("\n".join(named if plan.prefill_replicas else plan.launch.values()))
    else:
        print_serving_plan(plan)
