"""Whether the counters show each crafted flaw, and not on its mended twin.

    python -m faults.kernels.judge OUT/*.fathom OUT/*.csv

Takes soundings (counters folded, or of a dive) and CSV of ncu; kernels are known by their names. Prints a
table and writes benchmarks/results/crafted.json. Ends with status 1 where a flaw is not shown, or is shown
on its twin.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from fathom.analysis.measures.formula import names, value_of
from fathom.sounding import Store, import_ncu, open_store

HERE = Path(__file__).resolve().parent
RESULT = HERE.parents[1] / "benchmarks" / "results" / "crafted.json"
SOURCES = ("ncu", "PM sampling", "PC sampling", "static")
FORMS = ("flawed", "mended")
# source -> kernel's name -> counter -> value
Counters = dict[str, dict[str, dict[str, float]]]


def opened(path: Path, scratch: Path) -> Store:
    """A sounding, or one made of ncu's output."""
    if path.is_dir() or path.suffix == ".zip":
        return open_store(path)
    return import_ncu([path], scratch / f"{path.stem}.fathom")


def collect(stores: list[Store]) -> Counters:
    """Every counter of every kernel, by source; where several soundings have it, the last."""
    counters: Counters = defaultdict(lambda: defaultdict(dict))
    for store in stores:
        rows = store.table("counters").drop_nulls("value").collect()
        for row in rows.iter_rows(named=True):
            kernel = row["family"].partition(" ")[0]
            counters[row["source"]][kernel][plain(row["counter"])] = row["value"]
    return counters


def plain(counter: str) -> str:
    """The counter's own name; PM sampling puts unit and set in front: SM_A.TriageCompute.sm__…"""
    return counter.rpartition("TriageCompute.")[2]


def flaws() -> dict[str, dict[str, Any]]:
    """`flaws.yaml`."""
    return yaml.safe_load((HERE / "flaws.yaml").read_text())


def judge(name: str, flaw: dict[str, Any], counters: Counters) -> dict[str, Any]:
    """One row: the first expression and source that have both forms decide."""
    row: dict[str, Any] = {"flaw": name, "title": flaw["title"], "unit": flaw["unit"]}
    row |= {key: flaw[key] for key in ("above", "below") if key in flaw}
    for source in (*SOURCES, *sorted(counters.keys() - set(SOURCES))):
        for expression in flaw["of"]:
            kernels = counters.get(source, {})
            values = {form: value_of(expression, kernels.get(f"{name}_{form}", {})) for form in FORMS}
            if None not in values.values():
                holds = {form: beyond(flaw, value) for form, value in values.items()}
                shown = {"shown": holds["flawed"], "shown_on_twin": holds["mended"]}
                return row | {"source": source, "counter": " ".join(expression.split()), **values, **shown}
    return row | {"abstained": why_not(name, flaw, counters)}


def beyond(flaw: dict[str, Any], value: float | None) -> bool:
    if value is None:
        return False
    return value > flaw["above"] if "above" in flaw else value < flaw["below"]


def why_not(name: str, flaw: dict[str, Any], counters: Counters) -> str:
    seen = {kernel for kernels in counters.values() for kernel in kernels}
    missing = [form for form in FORMS if f"{name}_{form}" not in seen]
    if missing:
        return f"no counters of {' and '.join(f'{name}_{form}' for form in missing)}"
    return f"no source has {', '.join(names(flaw['of'][0]))}, or what stands in for it, of both forms"


def table(rows: list[dict[str, Any]]) -> str:
    """The result as text."""
    lines = [f"{'flaw':<32}{'flawed':>12}{'mended':>12}  verdict"]
    for row in rows:
        if "abstained" in row:
            lines.append(f"{row['title']:<32}{'':>24}  not analysed: {row['abstained']}")
            continue
        verdict = "shown" if row["shown"] else "NOT shown"
        verdict += ", and on its twin TOO" if row["shown_on_twin"] else ", not on its twin"
        values = f"{row['flawed']:>12.4g}{row['mended']:>12.4g}"
        lines.append(f"{row['title']:<32}{values}  {verdict} ({row['unit']}, {row['source']})")
    return "\n".join(lines)


def good(row: dict[str, Any]) -> bool:
    """Shown where it is, and not where it is not."""
    return bool(row.get("shown")) and not row.get("shown_on_twin")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        counters = collect([opened(path, Path(scratch)) for path in options.paths])
    rows = [judge(name, flaw, counters) for name, flaw in flaws().items()]
    print(table(rows))
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if all(map(good, rows)) else 1)


if __name__ == "__main__":
    main()
