"""Plans of serving, of long runs and of purchases on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from fathom.planner import Quantity
from fathom.planner.buying import Advice, Comparison
from fathom.planner.reliability import ReliabilityPlan
from fathom.planner.serving import ServingPlan
from fathom.report import units
from fathom.report.screen import show
from fathom.units import GIB, MS_PER_S

BAR = 10
_LATENCIES = ("ttft", "ttft_p50", "ttft_p99", "tpot", "tpot_p50", "tpot_p99", "end_to_end")


def print_serving_plan(plan: ServingPlan, console: Console | None = None) -> None:
    """Print a plan of serving."""
    show(lambda width: _serving(plan), console)


def print_reliability_plan(plan: ReliabilityPlan, console: Console | None = None) -> None:
    """Print a plan of a long run."""
    show(lambda width: _reliability(plan), console)


def print_machines(comparison: Comparison, console: Console | None = None) -> None:
    """Print two machines under one workload."""
    show(lambda width: _machines(comparison), console)


def print_shapes(advice: Sequence[Advice], console: Console | None = None) -> None:
    """Print the sizes of a model that a nearby one would beat."""
    show(lambda width: _shapes(advice), console)


def _span(q: Quantity, factor: float = 1.0, unit: str = "") -> str:
    low, high = (units.significant(factor * end) for end in q.interval)
    return f"{units.significant(factor * q.value)}{unit} ({low} to {high})"


def _milliseconds(q: Quantity) -> str:
    low, high = (units.duration(MS_PER_S * end) for end in q.interval)
    return f"{units.duration(MS_PER_S * q.value)} ({low} to {high})"


def _degrees(layout: Mapping[str, int]) -> str:
    """Return the degrees of parallelism above 1, and always that of tp."""
    return " ".join(f"{name}={degree}" for name, degree in layout.items() if degree > 1 or name == "tp")


def _serving(plan: ServingPlan) -> Iterator[Text]:
    degrees = _degrees(plan.layout)
    many = f"{plan.replicas} replicas" if plan.replicas > 1 else "1 replica"
    ttft, tpot = (_milliseconds(plan.figures[name]) for name in ("ttft", "tpot"))
    front = f" and {plan.prefill_replicas} for prefill" if plan.prefill_replicas else ""
    yield Text(f"TTFT {ttft}, TPOT {tpot} on {plan.gpus} {plan.system}.", "bold")
    yield Text(
        f"{plan.model} in {plan.weights} under {plan.engine} · {many}{front} of {degrees} · "
        f"{plan.provenance}",
        "dim",
    )
    yield from (Text(f"! {note}", "yellow") for note in plan.notes)
    yield Text("")
    yield Text(f"{'clients see':<24}{'value':>12}{'90 % interval':>26}", "dim underline")
    for name in _LATENCIES:
        q = plan.figures[name]
        low, high = (units.duration(MS_PER_S * end) for end in q.interval)
        yield Text(
            f"{name.replace('_', ' '):<24}{units.duration(MS_PER_S * q.value):>12}{f'{low} to {high}':>26}"
        )
    yield Text("")
    yield from _iteration(plan)
    yield Text("")
    yield from _costs(plan)
    yield from _choices(plan)


def _iteration(plan: ServingPlan) -> Iterator[Text]:
    total = sum(plan.iteration.values())
    yield Text(f"{f'a decode iteration of {plan.batch} sequences':<40}{'ms':>10}{'%':>8}", "dim underline")
    for name, seconds in sorted(plan.iteration.items(), key=lambda part: -part[1]):
        if seconds > 0:
            yield Text(
                f"{name:<40}{MS_PER_S * seconds:>10.2f}{100 * seconds / total:>8.1f}  "
                f"{units.bar(seconds / total, BAR)}"
            )
    light = f"the speed of light of one token is {units.duration(MS_PER_S * plan.floor_tpot)}"
    yield Text(f"{'iteration':<40}{MS_PER_S * total:>10.2f}{100:>8}  {light}", "bold")


def _costs(plan: ServingPlan) -> Iterator[Text]:
    yield Text(
        f"output {_span(plan.figures['output_rate'], unit=' tokens/s')}, "
        f"{_span(plan.figures['output_rate_per_gpu'])} per GPU"
    )
    yield Text(
        f"KV cache {plan.kv_blocks:,} blocks, {plan.kv_tokens:,} tokens per rank; weights "
        f"{plan.weight_bytes / GIB:.1f} GiB per GPU"
    )
    yield Text(
        f"{_span(plan.joules_per_token, unit=' J')} per token, and "
        f"{_span(plan.cooling_joules_per_token, unit=' J')} to cool; {plan.watts_per_gpu.value:.0f} "
        f"W per GPU with its host ({plan.watts_per_gpu.provenance})"
    )
    if plan.dollars_per_million_tokens:
        yield Text(f"{_span(plan.dollars_per_million_tokens)} per million output tokens")


def _choices(plan: ServingPlan) -> Iterator[Text]:
    if len(plan.choices) < 2:
        return
    yield Text("")
    yield Text(
        f"{'fleets that hold them':<30}{'GPUs':>6}{'TTFT':>12}{'TPOT':>12}{'held':>8}{'$/h':>10}{'kW':>8}",
        "dim underline",
    )
    for row in plan.choices:
        layout = _degrees(row.layout)
        share = f"{row.within_limits:.1%}"
        price = f"{row.dollars_per_hour:,.0f}" if row.dollars_per_hour else units.MISSING
        yield Text(
            f"{f'{row.replicas} × {layout}':<30}{row.gpus:>6}{units.duration(MS_PER_S * row.ttft_s):>12}"
            f"{units.duration(MS_PER_S * row.tpot_s):>12}{share:>8}{price:>10}{row.watts / 1e3:>8.1f}"
        )


def _reliability(plan: ReliabilityPlan) -> Iterator[Text]:
    low, high = plan.goodput.interval
    yield Text(
        f"Goodput {plan.goodput.value:.1%} ({low:.1%} to {high:.1%}); wall time "
        f"{_span(plan.wall_days, unit=' days')}.",
        "bold",
    )
    yield Text(
        f"{plan.gpus:,} GPUs · a failure every {_span(plan.mtbf_h, unit=' h')} · "
        f"{_span(plan.failures)} failures in all · {plan.mtbf_h.provenance}: {plan.mtbf_h.source}",
        "dim",
    )
    yield from (Text(f"! {note}", "yellow") for note in plan.notes)
    yield Text("")
    yield Text(f"{'where the wall time goes':<32}{'%':>8}", "dim underline")
    for name, share in plan.entries.items():
        yield Text(f"{name:<32}{100 * share:>8.2f}  {units.bar(share, BAR)}")
    yield Text("")
    yield Text(
        f"Checkpoint every {units.duration(MS_PER_S * plan.interval_s)}: "
        f"{plan.checkpoint_bytes / 1e9:,.0f} GB, {plan.checkpoint}, stops the job for "
        f"{units.duration(MS_PER_S * plan.stop_s)}"
    )
    yield Text(
        f"  Young {units.duration(MS_PER_S * plan.young_s)}, Daly {units.duration(MS_PER_S * plan.daly_s)}",
        "dim",
    )
    yield Text(f"{'interval':>12}{'simulated':>12}{'formula':>12}", "dim underline")
    for point in plan.curve:
        yield Text(
            f"{units.duration(MS_PER_S * point.interval_s):>12}{point.goodput:>12.2%}{point.formula:>12.2%}"
        )
    worst = sorted(plan.components.items(), key=lambda part: -part[1])[:5]
    yield Text("failures per day: " + ", ".join(f"{name} {rate:.2f}" for name, rate in worst), "dim")
    if plan.dollars:
        low, high = plan.dollars.interval
        yield Text(f"bill ${plan.dollars.value:,.0f} ({low:,.0f} to {high:,.0f})")


def _machines(of: Comparison) -> Iterator[Text]:
    yield Text(
        f"{of.second.system} serves {of.speedup:.2f}× the tokens of {of.first.system} per GPU "
        f"({of.speedup_low:.2f} to {of.speedup_high:.2f}).",
        "bold",
    )
    yield from (Text(f"! {note}", "yellow") for note in of.notes)
    yield Text("")
    yield Text(f"{'':<34}{of.first.system:>14}{of.second.system:>14}", "dim underline")
    sides = (of.first, of.second)
    rows = [
        ("GPUs", [f"{s.gpus}" for s in sides]),
        ("output tokens/s", [units.significant(s.tokens_per_s.value) for s in sides]),
        ("kWh per million tokens", [units.significant(s.kwh_per_million) for s in sides]),
        ("kWh to cool per million tokens", [units.significant(s.cooling_kwh_per_million) for s in sides]),
        (
            "price per million tokens",
            [
                units.significant(s.dollars_per_million) if s.dollars_per_million else units.MISSING
                for s in sides
            ],
        ),
        ("days for all tokens", [units.significant(s.days) if s.days else units.MISSING for s in sides]),
        ("rests on", [s.provenance for s in sides]),
    ]
    for name, cells in rows:
        yield Text(f"{name:<34}{cells[0]:>14}{cells[1]:>14}")
    yield Text("")
    claimed = ", ".join(f"{name} {ratio:.2f}×" for name, ratio in of.claims.items())
    yield Text(f"Ratios of the datasheets' peaks: {claimed}; this workload gets {of.speedup:.2f}×")
    if of.even_price:
        yield Text(
            f"Break-even: a token costs the same if a GPU hour of {of.second.system} costs "
            f"{of.even_price:.2f}"
        )
    if of.even_wait_days is not None:
        yield Text(
            f"It pays to wait for {of.second.system} for at most {max(0.0, of.even_wait_days):,.1f} days"
        )


def _shapes(advice: Sequence[Advice]) -> Iterator[Text]:
    if not advice:
        yield Text("No nearby size gains 2 % or more.", "bold")
        return
    yield Text(f"{'size':<22}{'now':>10}{'nearest':>10}{'gain':>8}  why", "dim underline")
    for row in advice:
        gain = f"{row.gain:.1%}" if row.gain else units.MISSING
        yield Text(f"{row.what:<22}{row.size:>10,}{row.nearest:>10,}{gain:>8}  {row.why}")
    yield Text(
        "Gains are of time per FLOP of all matrix products, by tiles and waves alone (assumed).", "dim"
    )
