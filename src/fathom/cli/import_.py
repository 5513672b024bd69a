"""`fathom import`: turn traces of several tools, results of ncu, or raw records into a sounding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from fathom.cli.console import Replace, examples, print_json
from fathom.visible import visible

if TYPE_CHECKING:
    from fathom.sounding import Store

EXAMPLES = examples(
    "fathom import rank0.json.gz rank1.json.gz -o job.fathom",
    "fathom import report.sqlite --step-range iteration   (Nsight Systems)",
    "fathom import train.fathom   (raw records of `fathom run --raw`)",
    "fathom import spans.json   (OpenTelemetry spans of vLLM or SGLang)",
    "fathom import kernels.ncu-rep   (or the output of `ncu --page raw --csv`)",
)

_SHOWN = ("ranks", "steps", "ops", "launches", "kernels", "counters", "requests")
_IF_ANY = ("counters", "requests")


def import_(
    traces: list[Path] = Argument(
        metavar="TRACE…", help="Traces, results of ncu (.ncu-rep, .csv), or a raw recording."
    ),
    output: Path | None = Option(None, "-o", "--output", help="Path of the sounding. [default: NAME.fathom]"),
    step_range: str | None = Option(
        None,
        "--step-range",
        help="Ranges that mark steps: a name, a part of it, or a pattern. [default: ranges named like step]",
    ),
    replace: Replace = False,
    json: bool = Option(False, "--json", help="Print a summary of the import as JSON."),
) -> None:
    """Turn traces of a profiler, results of ncu, or raw records into a sounding.

    Traces are those of torch.profiler (one file per rank), Nsight Systems (.sqlite, .nsys-rep), rocprofv3
    (.db, .json), JAX (.trace.json.gz), and others in Chrome's format. Files of the OpenTelemetry collector
    give the requests of vLLM and SGLang.
    """
    from fathom.cli.progress import waiting
    from fathom.recorder import import_any

    with waiting(f"importing {traces[0].name}"):
        store = import_any(traces, output, replace=replace, step_range=step_range)
    summary = _summary(store)
    if json:
        print_json(summary)
    else:
        print(visible(_text(summary)))


def _summary(store: Store) -> dict[str, Any]:
    import polars as pl

    from fathom.sounding import TABLES

    counts = dict.fromkeys(TABLES, 0)
    for name in filter(store.has, TABLES):
        counts[name] = store.table(name).select(pl.len()).collect().item()
    return {
        "path": str(store.path),
        "ranks": store.ranks,
        "rows": counts,
        "ended": store.manifest.ended,
        "problems": store.manifest.problems,
        "abstained": store.manifest.abstained,
    }


def _text(summary: dict[str, Any]) -> str:
    counted = {"ranks": len(summary["ranks"]), **summary["rows"]}
    shown = [name for name in _SHOWN if name not in _IF_ANY or counted[name]]
    counts = [_count(counted[name], name) for name in shown]
    lines = [f"{summary['path']}: {', '.join(counts)}"]
    lines += [f"  problem: {problem.text}" for problem in summary["problems"]]
    lines += [f"  not analysed: {row['what']}: {row['why']}" for row in summary["abstained"]]
    return "\n".join(lines)


def _count(number: int, name: str) -> str:
    singular = {"launches": "launch"}.get(name, name.removesuffix("s"))
    return f"{number:,} {singular if number == 1 else name}"
