"""Plans of serving, of long runs and of purchases on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict
from rich.text import Text

from fathom.planner import Quantity
from fathom.planner.buying import Advice, Comparison, Side
from fathom.planner.reliability import ReliabilityPlan
from fathom.planner.serving import COOLING, Choice, ReplicaLayout, ServingPlan
from fathom.report import units
from fathom.report.screen import show
from fathom.units import GIB, MS_PER_S

BAR = 10
_LATENCIES = ("ttft", "ttft_p50", "ttft_p99", "tpot", "tpot_p50", "tpot_p99", "end_to_end")


def print_serving_plan(plan: ServingPlan) -> None:
    """Print a plan of serving."""
    show(lambda width: _serving(plan))


def print_reliability_plan(plan: ReliabilityPlan) -> None:
    """Print a plan of a long run."""
    show(lambda width: _reliability(plan))


def print_machines(comparison: Comparison) -> None:
    """Print two machines under one workload."""
    show(lambda width: _machines(comparison))


def print_shapes(advice: Sequence[Advice]) -> None:
    """Print the sizes of a model that a nearby one would beat."""
    show(lambda width: _shapes(advice))


def _seconds(seconds: float) -> str:
    return units.duration(MS_PER_S * seconds)


def _interval(q: Quantity) -> str:
    low, high = map(_seconds, q.interval)
    return f"{low} to {high}"


def _headings(text: str) -> Text:
    return Text(text, "dim underline")


def _bars(title: str, shares: Mapping[str, float]) -> Iterator[Text]:
    """Yield a table of shares of a whole, each with a bar."""
    yield _headings(f"{title:<32}{'%':>8}")
    for name, share in shares.items():
        yield Text(f"{name:<32}{100 * share:>8.2f}  {units.bar(share, BAR)}")


def degrees(layout: ReplicaLayout) -> str:
    """Return the degrees of parallelism above 1, and always that of tp."""
    every = asdict(layout).items()
    return " ".join(f"{name}={degree}" for name, degree in every if degree > 1 or name == "tp")


def headline(plan: ServingPlan) -> str:
    """Return the sentence that states the latencies with their intervals, and the GPUs."""
    ttft, tpot = (
        f"{name.upper()} {_seconds(q.value)} ({_interval(q)})"
        for name in ("ttft", "tpot")
        for q in [plan.figures[name]]
    )
    return f"{ttft}, {tpot} on {plan.gpus} {plan.system}."


def setting(plan: ServingPlan) -> str:
    """Return the line below the headline: model, engine and fleet."""
    many = f"{plan.replicas} replicas" if plan.replicas > 1 else "1 replica"
    front = f" and {plan.prefill_replicas} for prefill" if plan.prefill_replicas else ""
    return (
        f"{plan.model} in {plan.weights} under {plan.engine} · {many}{front} of {degrees(plan.layout)} · "
        f"{plan.provenance}"
    )


def fleet_words(row: Choice) -> str:
    """Return a fleet in words: replicas, those for prefill first, and their layout."""
    front = f"{row.prefill_replicas} prefill + " if row.prefill_replicas else ""
    return f"{front}{row.replicas} × {degrees(row.layout)}"


def _serving(plan: ServingPlan) -> Iterator[Text]:
    yield Text(headline(plan), "bold")
    yield Text(setting(plan), "dim")
    yield from (Text(f"! {note}", "yellow") for note in plan.notes)
    yield Text("")
    yield _headings(f"{'latency for clients':<24}{'value':>12}{'90 % interval':>26}")
    for name in _LATENCIES:
        q = plan.figures[name]
        yield Text(f"{name.replace('_', ' '):<24}{_seconds(q.value):>12}{_interval(q):>26}")
    yield Text("")
    yield from _iteration(plan)
    yield Text("")
    yield from _costs(plan)
    yield from _choices(plan)


def _iteration(plan: ServingPlan) -> Iterator[Text]:
    total = sum(plan.iteration.values())
    title = f"decode iteration of {plan.batch} sequence{'' if plan.batch == 1 else 's'}"
    yield _headings(f"{title:<40}{'ms':>10}{'%':>8}")
    for name, seconds in sorted(plan.iteration.items(), key=lambda part: -part[1]):
        if seconds > 0:
            yield Text(
                f"{name:<40}{MS_PER_S * seconds:>10.2f}{100 * seconds / total:>8.1f}  "
                f"{units.bar(seconds / total, BAR)}"
            )
    light = f"speed of light for one token: {_seconds(plan.floor_tpot)}"
    yield Text(f"{'iteration':<40}{MS_PER_S * total:>10.2f}{100:>8}  {light}", "bold")


def _costs(plan: ServingPlan) -> Iterator[Text]:
    yield Text(
        f"output {units.spanned(plan.figures['output_rate'], ' tokens/s')}, "
        f"{units.spanned(plan.figures['output_rate_per_gpu'])} per GPU"
    )
    yield Text(
        f"KV cache {plan.kv_blocks:,} blocks, {plan.kv_tokens:,} tokens per rank; weights "
        f"{plan.weight_bytes / GIB:.1f} GiB per GPU"
    )
    yield Text(
        f"energy {units.spanned(plan.joules_per_token, ' J')} per token, plus "
        f"{units.spanned(plan.cooling_joules_per_token, ' J')} for cooling"
    )
    watts = plan.watts_per_gpu
    yield Text(f"power {units.spanned(watts, ' W')} per GPU with its share of the host ({watts.provenance})")
    if plan.dollars_per_million_tokens:
        yield Text(f"price {units.spanned(plan.dollars_per_million_tokens)} per million output tokens")


def _choices(plan: ServingPlan) -> Iterator[Text]:
    if len(plan.choices) < 2:
        return
    yield Text("")
    yield _headings(
        f"{'fleets ' + plan.searched:<32}{'GPUs':>5}{'TTFT':>10}{'TPOT':>10}{'met':>8}{'tokens/s/GPU':>14}"
        f"{'$/h':>8}{'rated kW':>10}"
    )
    for row in plan.choices:
        share = f"{100 * row.within_limits:.1f} %" if plan.searched == "within the limits" else units.MISSING
        price = f"{row.dollars_per_hour:,.0f}" if row.dollars_per_hour else units.MISSING
        ttft = _seconds(row.ttft_s) if row.keeps_up else "grows"
        yield Text(
            f"{fleet_words(row):<32}{row.gpus:>5}{ttft:>10}{_seconds(row.tpot_s):>10}{share:>8}"
            f"{row.output_rate / row.gpus:>14,.0f}{price:>8}{row.watts / 1e3:>10.1f}"
        )


def _reliability(plan: ReliabilityPlan) -> Iterator[Text]:
    low, high = plan.goodput.interval
    yield Text(
        f"Goodput {100 * plan.goodput.value:.1f} % ({100 * low:.1f} % to {100 * high:.1f} %); wall time "
        f"{units.spanned(plan.wall_days, ' days')}.",
        "bold",
    )
    yield Text(
        f"{plan.gpus:,} GPUs · a failure every {units.spanned(plan.mtbf_h, ' h')} · "
        f"{units.spanned(plan.failures)} failures in total · {plan.mtbf_h.provenance}: {plan.mtbf_h.source}",
        "dim",
    )
    yield from (Text(f"! {note}", "yellow") for note in plan.notes)
    yield Text("")
    yield from _bars("where the wall time goes, on average", plan.entries)
    yield Text("")
    yield Text(
        f"Checkpoint every {_seconds(plan.interval_s)}: {plan.checkpoint_bytes / 1e9:,.0f} GB, "
        f"{plan.checkpoint}, stops the job for {_seconds(plan.stop_s)}"
    )
    yield Text(
        f"  best by Young's formula {_seconds(plan.young_s)}, by Daly's {_seconds(plan.daly_s)}", "dim"
    )
    yield Text("goodput by checkpoint interval, if failures come at the expected rate", "dim")
    yield _headings(f"{'interval':>12}{'simulated':>12}{'formula':>12}")
    for point in plan.curve:
        yield Text(
            f"{_seconds(point.interval_s):>12}{100 * point.goodput:>10.2f} %{100 * point.formula:>10.2f} %"
        )
    worst = sorted(plan.components.items(), key=lambda part: -part[1])[:5]
    yield Text("failures per day: " + ", ".join(f"{name} {rate:.2f}" for name, rate in worst), "dim")
    if plan.dollars:
        low, high = plan.dollars.interval
        yield Text(f"cost ${plan.dollars.value:,.0f} ({low:,.0f} to {high:,.0f})")


def _machines(of: Comparison) -> Iterator[Text]:
    yield Text(
        f"A GPU of {of.second.system} is {of.speedup:.2f}× as fast as one of {of.first.system} "
        f"({of.speedup_low:.2f} to {of.speedup_high:.2f}) for this workload.",
        "bold",
    )
    yield from (Text(f"! {note}", "yellow") for note in of.notes)
    yield Text("")
    yield _headings(f"{'':<34}{of.first.system:>30}{of.second.system:>30}")
    for name, cells in _compared(of):
        yield Text(f"{name:<34}{cells[0]:>30}{cells[1]:>30}")
    yield Text("")
    yield from _worth(of)


def _compared(of: Comparison) -> list[tuple[str, list[str]]]:
    """Return the rows of the table: a name, and a cell for each machine."""
    sides, unit = (of.first, of.second), of.first.tokens_per_s.unit.removesuffix("/s")

    def spanned(value: float | None, rate: Quantity) -> str:
        """Return a figure that falls as the rate rises, with the interval that the rate's gives it."""
        if not value:
            return units.MISSING
        low, high = rate.interval
        return units.spanned(Quantity(value, "", "", "", value * rate.value / high, value * rate.value / low))

    return [
        ("GPUs", [f"{s.gpus}" for s in sides]),
        (f"{unit}/s", [units.spanned(s.tokens_per_s, written=units.scaled) for s in sides]),
        (f"kWh per million {unit}", [_spread(s.kwh_per_million, s, 1.0) for s in sides]),
        (f"cooling kWh per million {unit}", [_spread(s.cooling_kwh_per_million, s, COOLING) for s in sides]),
        (f"price per million {unit}", [spanned(s.dollars_per_million, s.tokens_per_s) for s in sides]),
        (f"days for all {unit}", [spanned(s.days, s.tokens_per_s) for s in sides]),
        ("provenance", [s.provenance for s in sides]),
    ]


def _spread(kwh: float, side: Side, share: float) -> str:
    low, high = (share * end for end in side.kwh_interval)
    return units.spanned(Quantity(kwh, "kWh", side.provenance, "", low, high))


def _worth(of: Comparison) -> Iterator[Text]:
    """Yield the ratios of the datasheets, and when the second machine is worth its price and the wait."""
    yield from _claims(of)
    if of.even_price:
        low, high = (of.even_price * end / of.speedup for end in (of.speedup_low, of.speedup_high))
        price = f"{of.even_price:.2f} ({low:.2f} to {high:.2f})"
        yield Text(f"Break-even: {price} for a GPU hour of {of.second.system}")
    if of.even_wait_days is not None:
        days = max(0.0, of.even_wait_days)
        yield Text(f"Waiting for {of.second.system} pays for at most {days:,.1f} days")


def _claims(of: Comparison) -> Iterator[Text]:
    """Yield the account of the workload, beside the ratios of peaks that the maker advertises."""
    if of.account:
        yield Text(f"{'where the GPU time goes':<34}{'share':>8}{'faster':>10}", "dim underline")
        for row in of.account:
            if max(row.share, row.second_ms / sum(r.second_ms for r in of.account)) >= 0.005:
                faster = f"{row.first_ms / row.second_ms:.2f}×" if row.second_ms else units.MISSING
                yield Text(f"{row.entry:<34}{row.share:>8.1%}{faster:>10}")
        yield Text(f"{'all':<34}{1:>8.0%}{of.speedup:>9.2f}×", "bold")
    claimed = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in of.claims.items())
    yield Text(f"Ratios of the datasheets' peaks: {claimed}")


def _shapes(advice: Sequence[Advice]) -> Iterator[Text]:
    if not advice:
        yield Text("No nearby size saves 2 % or more.", "bold")
        return
    yield _headings(f"{'size':<22}{'now':>10}{'nearest':>10}{'gain':>8}  why")
    for row in advice:
        gain = f"{100 * row.gain:.1f} %" if row.gain else units.MISSING
        yield Text(f"{row.what:<22}{row.size:>10,}{row.nearest:>10,}{gain:>8}  {row.why}")
    yield Text("Gain: time per FLOP of all matmuls, from tiles and waves alone (assumed).", "dim")
