"""`fathom load`: load a server, and judge the load test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from fathom.cli.console import Price, examples, write_json
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.load import Load, Workload

EXAMPLES = examples(
    "fathom load http://127.0.0.1:8000 --model qwen --rate 4 --requests 200",
    "fathom load http://127.0.0.1:8000 --model qwen --rate 4 --slo 'ttft<500,tpot<50'",
    "fathom load http://127.0.0.1:8000 --model qwen --sweep 1,2,4,8 --slo 'e2e<2s'",
    "fathom load http://127.0.0.1:8000 --model qwen --pattern replay --trace trace.jsonl",
)


def load(
    url: str = Argument(metavar="URL", help="Address of a server with OpenAI's API."),
    model: str = Option(..., help="The model's name at the server."),
    rate: float = Option(1.0, min=0.001, help="Requests per second."),
    requests: int = Option(100, min=1, help="Requests to send, warm-up included."),
    pattern: Literal["constant", "poisson", "bursty", "replay"] = Option(
        "poisson", help="Arrivals: at equal or exponential intervals, in bursts, or as in a trace."
    ),
    trace: Path | None = Option(
        None, help="Trace to replay: JSON lines with timestamp (ms), text_input, output_length."
    ),
    words: int = Option(200, min=1, help="Words of each prompt."),
    shared: int = Option(0, min=0, help="Words that all prompts begin with, for the prefix cache."),
    tokens: int = Option(64, min=1, help="Tokens to generate, at most."),
    turns: int = Option(1, min=1, help="Turns of each conversation."),
    warmup: int = Option(2, min=0, help="Requests at the start that do not count."),
    slo: str | None = Option(None, help="Limits that a good request meets, like ttft<500,tpot<50 (ms)."),
    percentile: float = Option(90.0, min=50, max=99.9, help="Refuse runs too short for this percentile."),
    sweep: str | None = Option(None, help="Rates to try, like 1,2,4,8; shows the frontier and its knee."),
    tokenizer: str | None = Option(None, help="Also count tokens with this tokenizer, to compare."),
    api_key_env: str | None = Option(
        None, metavar="NAME", help="Variable with the server's API key, instead of FATHOM_API_KEY."
    ),
    price: Price = None,
    json: bool = Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Load-test a server with aiperf, measure latency from each request's scheduled start, and judge the run.

    A run that would mislead is refused with the reasons, and the exit status is 1: a late or busy client, a
    closed loop, unknown or disputed token counts, counted warm-up requests, no steady state, too few
    requests.

    The metrics of vLLM and SGLang (/metrics) are also read during the run, and shown beside the client's
    figures. An API key is read from a variable of the environment, and is neither printed nor stored.
    """
    from fathom.load import Slo, Workload, api_key, frontier, require_answer, rows
    from fathom.machine import configured_price, parse_price
    from fathom.report import print_load

    limits = Slo.parse(slo) if slo else None
    known = configured_price() if price is None else parse_price(price)
    rates, key = _rates(sweep) if sweep else [rate], api_key(api_key_env)
    if sweep and trace:
        raise BadInputError("--trace has its own rate; leave out --sweep.")
    works = [Workload(at, requests, pattern, words, shared, tokens, turns, trace=trace) for at in rates]
    _check_warmup(warmup, len(rows(works[0])))  # raises too if the trace cannot be read
    require_answer(url, model, key)

    judging = {
        "warmup": warmup,
        "slo": limits,
        "percentile": percentile / 100,
        "price_per_hour": known.amount if known else None,
    }
    loads = [_judged(url, model, work, tokenizer, key, judging) for work in works]
    (write_json if json else print_load)(frontier(loads) if sweep else loads[0])
    if all(load.refusals for load in loads):
        raise SystemExit(1)


def _judged(
    url: str, model: str, work: Workload, tokenizer: str | None, key: str | None, judging: dict[str, Any]
) -> Load:
    """Send the requests of a workload, and return what they show."""
    from fathom.diagnosis import diagnose_load
    from fathom.load import drive, judged, scraped, server_account, shared_share

    with scraped(url, key) as metrics:
        sent, busiest = drive(url, model, work, tokenizer, key)
    rate, counted = 0.0 if work.trace else work.rate, tokenizer is not None
    result = judged(sent, rate=rate, pattern=work.pattern, client_cpu=busiest, tokenizer=counted, **judging)
    result.server, notes = server_account(metrics, sent)
    result.notes += notes
    diagnose_load(result, shared_share(work))
    return result


def _check_warmup(warmup: int, requests: int) -> None:
    if warmup >= requests:
        raise BadInputError(
            f"--warmup {warmup} leaves none of the {requests} requests to measure; send more, or lower it."
        )


def _rates(text: str) -> list[float]:
    try:
        rates = [float(word) for word in text.split(",")]
    except ValueError:
        rates = []
    if not rates or min(rates) <= 0:
        raise BadInputError(f"--sweep is {text!r}; give rates in requests per second, like 1,2,4,8.")
    return rates
