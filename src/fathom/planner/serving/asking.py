"""A question of serving from the words of a command line or of Python."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fathom.errors import BadInputError, file_error
from fathom.machine import parse_price
from fathom.planner.hardware import Hardware
from fathom.planner.quantity import ASSUMED, Quantity
from fathom.planner.serving.deployment import Deployment, engine
from fathom.planner.serving.launching import recalibrated
from fathom.planner.serving.load import Load
from fathom.planner.serving.plan import Question
from fathom.planner.serving.search import Limits, layouts
from fathom.planner.workload import Model
from fathom.planner.workload import model as model_called
from fathom.regular import decode, read_regular

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_LATEST_S, _LONGEST = 1e9, 10**9  # arrival, and tokens of a request


def ask_serving(
    model: str,
    system: Hardware,
    *,
    engine_name: str = "vllm",
    weights: str = "bf16",
    kv: str | None = None,
    prompt: int = 1024,
    output: int = 1024,
    concurrency: int | None = None,
    rate: float | None = None,
    arrival: str = "poisson",
    requests: int | None = None,
    spread: float = 0.0,
    trace: Path | None = None,
    hit: float = 0.0,
    ttft: str | None = None,
    tpot: str | None = None,
    share: float = 0.99,
    objective: str = "gpus",
    gpus: int | None = None,
    tp: int | None = None,
    dp: int = 1,
    ep: int | None = None,
    max_batch: int | None = None,
    max_tokens: int | None = None,
    drafted: int = 0,
    acceptance: float = 0.0,
    replicas: int | None = None,
    prefill_replicas: int = 0,
    disaggregate: bool = False,
    routing: str = "least-loaded",
    price: str | None = None,
    assume: Sequence[str] = (),
    measured: Path | None = None,
) -> Question:
    """Return the question for `plan_serving`. Raises BadInputError for whatever is unknown or impossible."""
    if system.mixed:
        raise BadInputError(f"A replica has GPUs of one kind; plan {' and '.join(system.mixed)} one by one.")
    system = _priced(system.assuming(assume), price)
    of = model_called(model)
    limits = Limits(_seconds(ttft), _seconds(tpot), share)
    _check_arrivals(rate, concurrency, requests, trace)
    arrives, rate = ("closed", 1.0) if rate is None else (arrival, rate)
    load = Load(
        prompt, output, arrives, concurrency or 16, rate, requests, spread, hit, trace=_trace(trace)
    )  # fmt: skip
    _check_length(of, load)
    kv = kv or ("fp8" if weights in ("fp8", "fp4") else "bf16")
    chosen = engine(engine_name)
    is_free = tp is None and dp == 1 and ep is None
    candidates = _candidates(Deployment(of, system, chosen, 1, 1, 1, weights, kv), tp, dp, ep)
    candidates = [
        replace(layout, max_batch=max_batch, max_tokens=max_tokens, drafted=drafted, acceptance=acceptance)
        for layout in candidates
    ]
    holding = [layout for layout in candidates if _holds(layout, load.longest)]
    candidates = holding or candidates[-1:]  # its simulation raises with the longest that fits
    _ = candidates[0].cache_space  # raises if the weights do not fit
    if gpus and (replicas or prefill_replicas):
        raise BadInputError(
            "--gpus finds the number of replicas; leave it out, or --replicas and --prefill-replicas."
        )
    if disaggregate and not limits.any:
        raise BadInputError("Pools are searched for latency limits; give --ttft, --tpot or both.")
    values = recalibrated(candidates, measured) if measured else None
    return Question(
        candidates, load, limits, objective, replicas, prefill_replicas, routing, values, disaggregate, gpus,
        is_free,
    )  # fmt: skip


def _holds(of: Deployment, tokens: int) -> bool:
    """Return whether the weights and a request of `tokens` fit."""
    try:
        return of.cache_bytes(tokens) <= of.cache_space
    except BadInputError:
        return False


def _check_arrivals(
    rate: float | None, concurrency: int | None, requests: int | None, trace: Path | None
) -> None:
    """Raise BadInputError unless one option says when requests arrive, and enough of them do."""
    given = {"--rate": rate, "--concurrency": concurrency, "--trace": trace}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise BadInputError(
            f"{' and '.join(names)} each say when requests arrive; give one of {', '.join(given)}."
        )
    if requests and concurrency and requests < concurrency:
        raise BadInputError(
            f"{requests:,} requests never are {concurrency:,} in flight; raise --requests, or leave it out."
        )


def _candidates(alone: Deployment, tp: int | None, dp: int, ep: int | None) -> list[Deployment]:
    """Return every layout of a replica that fits, or the one that completes the given degrees.

    If none fits, return one GPU alone, whose error names the nearest.
    """
    fitting = list(layouts(alone.model, alone.hardware, alone.engine, alone.weights, alone.kv))
    if tp is None and dp == 1 and ep is None:
        return fitting or [alone]
    spread_out = max(1, (ep or 1) // dp)  # GPUs that experts need beyond the ranks of attention
    least = fitting[0].tp if fitting and dp == 1 else 1
    return [alone.having(tp=tp or max(least, spread_out), dp=dp, ep=ep or 1)]


def _check_length(model: Model, load: Load) -> None:
    """Raise BadInputError if the longest request is over the model's context length."""
    if model.context is None or load.longest <= model.context:
        return
    tokens = f"of {model.name} has at most {model.context:,} tokens, and the longest request {load.longest:,}"
    raise BadInputError(f"A sequence {tokens}; {_shorter(model.context, load)}.")


def _shorter(context: int, load: Load) -> str:
    """Return the nearest lengths that a model takes, in words."""
    if load.trace:
        return "leave longer requests out of the trace"
    most = int(context / (1 + load.spread))
    if load.output < most:
        return f"give --prompt {most - load.output}, or a model with a longer context"
    return (
        f"give --output {max(1, most - load.prompt)}"
        if load.prompt < most
        else (f"give --prompt {most // 2} --output {most // 2}")
    )


def _priced(system: Hardware, price: str | None) -> Hardware:
    if not price:
        return system
    paid = parse_price(price)
    return system.having(price=Quantity(paid.amount, f"{paid.currency}/h", ASSUMED, "given by the user"))


def _seconds(text: str | None) -> float:
    if text is None:
        return float("inf")
    number, unit = text.strip(), "ms"
    for name in _SECONDS:
        if text.strip().endswith(name):
            number, unit = text.strip()[: -len(name)], name
            break
    try:
        value = float(number) * _SECONDS[unit]
    except ValueError:
        value = 0.0
    if not value > 0:
        raise BadInputError(f"{text!r} is not a latency; write one like 200ms or 1.5s.")
    return value


def _trace(path: Path | None) -> tuple[tuple[float, int, int], ...]:
    """Return the rows of a trace: lines of arrival in seconds, prompt and output tokens, as JSON or CSV."""
    if path is None:
        return ()
    try:
        text = read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            file_error(path, error) if isinstance(error, OSError) else f"{path} is not text."
        ) from None
    rows = [_row(line, path) for line in text.splitlines() if line.strip(' "')[:1] in tuple("[{0123456789.")]
    if not rows:
        raise BadInputError(f"{path} has no requests; write lines of arrival in seconds, prompt, output.")
    return tuple(rows)


def _row(line: str, path: Path) -> tuple[float, int, int]:
    try:
        cells = decode(line.encode()) if line.strip()[0] in "[{" else next(csv.reader([line]))
        if isinstance(cells, dict):
            cells = [cells["arrival"], cells["prompt"], cells["output"]]
        arrival, prompt, output = float(cells[0]), int(cells[1]), int(cells[2])
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, csv.Error):
        arrival, prompt, output = -1.0, 0, 0
    if not (0 <= arrival <= _LATEST_S and 1 <= prompt <= _LONGEST and 1 <= output <= _LONGEST):
        raise BadInputError(
            f"{path} has a line that is not a request: {line[:60]!r}; write arrival,prompt,output."
        )
    return arrival, prompt, output
