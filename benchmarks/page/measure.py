"""Measure the page of `fathom report --html` in headless Chromium, and keep screenshots of it.

    python -m benchmarks.page.measure [--shots FOLDER] [--chromium PATH] [SOUNDING ...]

For each sounding, by default the examples: size of the page, time until it is loaded and until every figure
is drawn, console errors and warnings, requests that leave the page, width beyond the screen, and violations
that axe-core reports with everything unfolded, at 390 and 1,440 pixels in light and dark colours. The times
are medians of `--rounds` openings; axe-core, which takes far longer, runs once for each view. npm installs
puppeteer-core and axe-core into a temporary folder. Writes
`results/page.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import fathom
from fathom.report import save_page

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "page.json"
PACKAGES = ("puppeteer-core@24", "axe-core@4")
VIEWS = ("light-1440", "dark-1440", "light-390", "dark-390")
SERIOUS = ("serious", "critical")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("soundings", nargs="*", type=Path)
    parser.add_argument("--shots", type=Path, help="folder for screenshots of each page")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    soundings = args.soundings or sorted((ROOT / "examples" / "soundings").glob("*.zip"))
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        install = ["npm", "install", "--silent", "--no-save", "--prefix", folder, *PACKAGES]
        subprocess.run(install, check=True)
        rows = [_measured(path, Path(folder), args) for path in soundings]
    version = subprocess.run([args.chromium, "--version"], capture_output=True, text=True, check=True)
    result = {"browser": version.stdout.strip(), "rounds": args.rounds, "pages": rows}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def _measured(sounding: Path, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    name = sounding.name.split(".")[0]
    page = folder / f"{name}.html"
    opened = fathom.open(sounding)
    save_page(opened.recording(opened.examine(price="3.50/h")), page)
    rounds = [_opened(page, folder, args.chromium) for _ in range(args.rounds)]
    shots = args.shots.resolve() / name if args.shots else ""
    checked = _opened(page, folder, args.chromium, "check", str(shots))
    violations = [violation for view in VIEWS for violation in checked["violations"][view]]
    return {
        "page": name,
        "bytes": rounds[0]["bytes"],
        "figures": rounds[0]["figures"],
        **{f"{view} {time}": statistics.median(r[view][time] for r in rounds)
           for view in VIEWS for time in ("load_ms", "drawn_ms")},
        "beyond_screen_px": max(row[view]["sideways"] for row in rounds for view in VIEWS),
        "console": sum(len(row["errors"]) for row in rounds),
        "requests": sum(len(row["requests"]) for row in rounds),
        "axe_rules_passed": checked["passes"],
        "axe_violations": len(violations),
        "axe_serious": sum(violation["impact"] in SERIOUS for violation in violations),
    }  # fmt: skip


def _opened(page: Path, folder: Path, chromium: str, *how: str) -> dict[str, Any]:
    command = ["node", str(Path(__file__).with_name("open_page.mjs")), chromium, str(page), *how]
    environment = {**os.environ, "NODE_MODULES": str(folder / "node_modules")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    main()
