"""`fathom plan serve`: latencies of a serving engine under a load, and the fewest GPUs that meet limits."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from fathom.cli.console import examples, page_path, print_json

EXAMPLES = examples(
    "fathom plan serve llama3-70b --on h100 --weights fp8 --rate 8 --ttft 1s --tpot 50ms --price 2.5/h",
    "fathom plan serve deepseek-v3 --on b200 --engine sglang --weights fp8 --tp 8 --ep 8 "
    "--concurrency 64 --explain",
    "fathom plan serve config.json --on machine.json --rate 4 --load-test test.json",
    "fathom plan serve config.json --on machine.json --rate 4 --measured test.json",
)


def serve(
    model: str = Argument(metavar="MODEL", help="A public model, or a Hugging Face config.json."),
    on: str = Option("h100", help="A system, or a machine file of `fathom machine measure`."),
    engine: str = Option("vllm", help="vllm, sglang, trtllm, nim, trtllm-bench."),
    weights: str = Option("bf16", help="bf16, fp8, int8, fp4 or int4."),
    kv: str | None = Option(None, help="Type of the KV cache; fp8 with fp8 and fp4 weights, else bf16."),
    prompt: int = Option(1024, min=1, help="Tokens of a prompt."),
    output: int = Option(1024, min=1, help="Tokens of an answer."),
    spread: float = Option(0.0, min=0, max=0.95, help="Spread of lengths: 0.2 is 0.8 to 1.2 times."),
    concurrency: int | None = Option(None, min=1, help="Requests in flight, a new one for each that ends."),
    rate: float | None = Option(None, help="Requests per second."),
    arrival: str = Option("poisson", help="With --rate: poisson, constant or bursty."),
    trace: Path | None = Option(None, help="File of lines: arrival in seconds, prompt, output tokens."),
    requests: int | None = Option(
        None,
        min=1,
        max=10_000,
        help="Requests that are simulated.  [default: as many as show the steady state]",
    ),
    hit: float = Option(0.0, min=0, max=1, help="Share of prompts found in the prefix cache."),
    ttft: str | None = Option(
        None, help="Limit of the time to the first token, like 1s or 500ms; a number alone is in ms."
    ),
    tpot: str | None = Option(
        None, help="Limit of the time per output token, like 50ms; a number alone is in ms."
    ),
    share: float = Option(0.99, min=0, max=1, help="Share of requests that must meet the limits."),
    objective: str = Option("gpus", "--for", help="Fewest gpus, dollars or watts."),
    tp: int | None = Option(None, min=1, help="Tensor parallelism of a replica."),
    dp: int = Option(1, min=1, help="Data parallelism of attention within a replica."),
    ep: int | None = Option(None, min=1, help="GPUs that experts are spread over."),
    replicas: int | None = Option(None, min=1, help="Replicas; default: the fewest that meet the limits."),
    prefill_replicas: int = Option(0, min=0, help="Replicas for prefill alone (disaggregation)."),
    disaggregate: bool = Option(
        False, "--disaggregate", help="Search replicas for prefill and for decode that meet the limits."
    ),
    routing: str = Option("least-loaded", help="least-loaded or round-robin."),
    max_batch: int | None = Option(None, min=1, help="Sequences of an iteration."),
    max_tokens: int | None = Option(None, min=1, help="Tokens of an iteration (chunked prefill)."),
    drafted: int = Option(0, min=0, help="Tokens drafted in an iteration (speculative decoding)."),
    acceptance: float = Option(0.0, min=0, max=1, help="Probability that a drafted token is accepted."),
    price: str | None = Option(None, help="Price of a GPU, like 2.50/h."),
    assume: list[str] = Option([], metavar="FIGURE=VALUE", help="Replace a figure, like 'hbm=4.2 TB/s'."),
    load_test: Path | None = Option(
        None, metavar="FILE", help="Write a load test whose result --measured reads."
    ),
    measured: Path | None = Option(None, metavar="FILE", help="Recalibrate with the result of a load test."),
    html: Path | None = Option(None, help="Write fleets, latencies, ledger and sensitivity as a page."),
    launch: bool = Option(False, "--launch", help="Print the commands that start vLLM and SGLang."),
    explain: bool = Option(False, "--explain", help="Derive every figure line by line."),
    json: bool = Option(False, "--json", help="Print the plan as JSON."),
) -> None:
    """Plan the serving of a model: TTFT, TPOT and cost by simulation, and the fewest GPUs for limits."""
    from fathom.planner.serving import ask_serving, explained, plan_serving
    from fathom.planner.training import system_called
    from fathom.report import print_serving_plan

    question = ask_serving(
        model, system_called(on), engine_name=engine, weights=weights, kv=kv, prompt=prompt, output=output,
        concurrency=concurrency, rate=rate, arrival=arrival, requests=requests, spread=spread, trace=trace,
        hit=hit, ttft=ttft, tpot=tpot, share=share, objective=objective, tp=tp, dp=dp, ep=ep,
        max_batch=max_batch, max_tokens=max_tokens, drafted=drafted, acceptance=acceptance,
        replicas=replicas, prefill_replicas=prefill_replicas, disaggregate=disaggregate,
        routing=routing, price=price, assume=assume,
        measured=measured,
    )  # fmt: skip
    plan = plan_serving(question)
    if load_test:
        from fathom.planner.serving import planned_test
        from fathom.report import save_text

        save_text(planned_test(question), load_test)
    if html:
        from fathom.report import save_serving_plan

        save_serving_plan(plan, page_path(html))
    if json:
        print_json(plan)
    elif explain:
        print("\n".join(explained(question, plan)))
    elif launch:
        print("\n".join(plan.launch.values()))
    else:
        print_serving_plan(plan)
