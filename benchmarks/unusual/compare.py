"""Run programs that do unusual things with and without Fathom: output, status and state must be the same.

    python -m benchmarks.unusual.compare [NAME...]

Standard error may have additional lines that begin with `fathom: `. A recording must be readable, or one of
these lines must say why there is none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

PYTHON = sys.executable
HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RESULT = HERE.parent / "results" / "unusual.json"
ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Outcome:
    """Status and output of a run, without Fathom's own lines."""

    status: int
    out: str
    err: str
    said: tuple[str, ...] = ()


def environment() -> dict[str, str]:
    """Return the environment of all runs: with this Fathom, which measures and keeps nothing."""
    source = str(HERE.parents[1] / "src")
    kept = {name: value for name, value in os.environ.items() if name != "FATHOM_RAW"}
    return {
        **kept,
        "PYTHONPATH": source,
        "FATHOM_MEASURE": "0",
        "FATHOM_HOME": "/tmp/fathom-remembers-nothing",
    }


def names() -> list[str]:
    """Return the programs."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "state")


def command(name: str) -> list[str]:
    """Return the command of a program, with Python's arguments from its docstring."""
    path = PROGRAMS / f"{name}.py"
    options = re.search(r"^Arguments: (.*?)\"*$", path.read_text(), re.MULTILINE)
    return [PYTHON, *(options[1].split() if options else ()), str(path)]


def outcome(words: list[str], folder: Path, env: dict[str, str]) -> Outcome:
    """Run a command in the new folder `folder / "work"`, whose path is the same for all runs."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    done = subprocess.run(
        words, cwd=work, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False
    )
    lines = done.stderr.decode(errors="replace").splitlines(keepends=True)
    err = "".join(line for line in lines if not line.startswith("fathom: "))
    said = tuple(line for line in lines if line.startswith("fathom: "))
    out = ADDRESS.sub("0x", done.stdout.decode(errors="replace"))
    return Outcome(done.returncode, out, ADDRESS.sub("0x", err), said)


def with_fathom(name: str, folder: Path) -> Outcome:
    """Run a program under `fathom run`; its sounding is `folder / "out.fathom"`."""
    fathom = [PYTHON, "-m", "fathom", "run", "-q", "--no-measure", "-o", str(folder / "out.fathom"), "--"]
    return outcome([*fathom, *command(name)], folder, environment())


def readable(sounding: Path) -> int:
    """Return how many steps the sounding holds. Raises FathomError if it cannot be read."""
    import fathom

    return fathom.open(sounding).table("steps").collect().height if _has_rank(sounding) else 0


def _has_rank(sounding: Path) -> bool:
    return (sounding / "manifest.json").exists() and any(sounding.glob("rank-*/steps.parquet"))


def judge(name: str, run: Callable[[str, Path], Outcome] = with_fathom) -> dict[str, object]:
    """Return what differed between both runs, and what was recorded."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        plain, recorded = outcome(command(name), folder, environment()), run(name, folder)
        before, after = asdict(plain), asdict(recorded)
        differs = [field for field in ("status", "out", "err") if before[field] != after[field]]
        try:
            steps: int | None = readable(folder / "out.fathom")
        except Exception as error:
            steps, differs = None, [*differs, f"sounding: {error}"]
        result: dict[str, object] = {"program": name, "steps": steps, "said": recorded.said}
        if differs:
            result["differs"] = {field: (before.get(field), after.get(field)) for field in differs}
        return result


def explained(result: dict[str, object]) -> bool:
    """Return whether a line said more than that the sounding is being written."""
    said: tuple[str, ...] = result["said"]  # type: ignore[assignment]
    return any("writing the sounding" not in line for line in said)


def main() -> int:
    """Judge the programs that the command line names, or all, whose result is kept."""
    chosen = sys.argv[1:] or names()
    results = []
    for name in chosen:
        result = judge(name)
        results.append(result)
        print(
            f"{'DIFFERS' if 'differs' in result else 'same':8} {name:20} {result['steps']} steps", flush=True
        )
        for field, pair in dict(result.get("differs") or {}).items():  # type: ignore[call-overload]
            first, second = map(str, pair)
            at = len(os.path.commonprefix([first, second]))  # noqa: RUF071
            for title, text in (("without", first), ("with", second)):
                print(f"  {field} {title:8}{text[max(at - 60, 0) : at + 300]!r}")
    same = sum("differs" not in result for result in results)
    recorded = sum(bool(result["steps"] or explained(result)) for result in results)
    print(f"{same} of {len(results)} the same, {recorded} recorded or explained")
    if not sys.argv[1:]:
        summary = {"programs": len(results), "same": same, "recorded_or_explained": recorded}
        kept = [{**result, "differs": sorted(result.get("differs") or ())} for result in results]  # type: ignore[call-overload]
        RESULT.write_text(json.dumps({**summary, "results": kept}, indent=1) + "\n")
    return int(same < len(results))


if __name__ == "__main__":
    sys.exit(main())
