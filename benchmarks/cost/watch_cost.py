"""Cost of `fathom watch`: its memory over a long run, its processor time, and its effect on the program.

    python -m benchmarks.cost.watch_cost soak [--minutes 30]
    python -m benchmarks.cost.watch_cost turns [--minutes 5]

`soak` runs a training program under `fathom run`, with a watch that serves metrics, raises alerts and
examines the recording. It reads the watch's resident memory and processor time every ten seconds, and
/metrics every minute with Prometheus' own parser. `turns` stops the watch (SIGSTOP) in every other stretch of
two seconds. The mean step of each stretch with the watch, over the mean of its two neighbours without it, is
a ratio; their median, with a bootstrapped 95 % interval, is the cost. Both write `results/watch_cost.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil

FOLDER = Path(__file__).parent.parent
RESULTS = FOLDER / "results" / "watch_cost.json"
PROGRAM = FOLDER / "programs" / "slows_down.py"
SAMPLE_S, SCRAPE_S, STRETCH_S = 10.0, 60.0, 2.0
STEP_S = 0.004  # at least: the number of steps follows from the minutes
ONE_THREAD = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
FATHOM = [sys.executable, "-m", "fathom"]


def started(folder: Path, minutes: float, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the program under `fathom run`; return its process and the recording."""
    recording = folder / "run.fathom"
    steps = str(int(minutes * 60 / STEP_S))
    program = [sys.executable, str(PROGRAM), "--small", "--cause", "none", "--steps", steps]
    times = ["--times", str(folder / "times.json")]
    command = [*FATHOM, "run", "--no-measure", "--raw", "-q", "-o", str(recording), *options, "--"]
    process = subprocess.Popen(
        [*command, *program, *times], env={**os.environ, **ONE_THREAD}, stdout=subprocess.DEVNULL
    )
    while not list((recording / "raw").glob("proc-*.jsonl")):
        time.sleep(0.2)
    return process, recording


def watching(recording: Path, *options: str) -> psutil.Popen:
    """Start a watch."""
    return psutil.Popen([*FATHOM, "watch", str(recording), *options], stdout=subprocess.DEVNULL)


def soak(minutes: float) -> dict[str, Any]:
    """Return memory, processor time and scrapes of a watch over so many minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        run, recording = started(Path(name), 10 * minutes)
        watch = watching(recording, "--serve", str(port), "--alert", "100")
        try:
            samples, scrapes = sampled(watch, f"http://127.0.0.1:{port}/metrics", recording, minutes)
        finally:
            watch.send_signal(signal.SIGINT)
            run.terminate()
            watch.wait()
            run.wait()
    return summary(samples, scrapes)


def sampled(
    watch: psutil.Popen, url: str, recording: Path, minutes: float
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return samples of the watch, and what /metrics said at each scrape."""
    begun, samples, scrapes = time.monotonic(), [], []
    while (now := time.monotonic() - begun) < 60 * minutes:
        time.sleep(SAMPLE_S)
        cpu = watch.cpu_times()
        log = sum(file.stat().st_size for file in (recording / "raw").glob("*.jsonl"))
        rss = watch.memory_info().rss
        samples.append({"s": now, "rss": rss, "cpu_s": cpu.user + cpu.system, "log": log})
        if len(scrapes) < now // SCRAPE_S:
            scrapes.append(scraped(url))
    return samples, scrapes


def scraped(url: str) -> dict[str, float]:
    """Return the number of families and some values, as Prometheus' own parser reads them."""
    from prometheus_client.parser import text_string_to_metric_families  # not needed on a target

    text = urllib.request.urlopen(url, timeout=10).read().decode()
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    known = {name: samples[0].value for name, samples in families.items() if samples}
    wanted = ("fathom_steps", "fathom_step_seconds", "fathom_goodput_ratio", "fathom_alerts")
    return {"families": len(families), **{name: known[name] for name in wanted if name in known}}


def summary(samples: list[dict[str, float]], scrapes: list[dict[str, float]]) -> dict[str, Any]:
    """Return the figures of a soak; growth is the slope of a line through the last nine tenths."""
    late = samples[len(samples) // 10 :]
    hours, rss = [each["s"] / 3600 for each in late], [each["rss"] / 1e6 for each in late]
    seconds = samples[-1]["s"] - samples[0]["s"]
    return {
        "minutes": round(samples[-1]["s"] / 60, 1),
        "rss_mb": {"first": late[0]["rss"] / 1e6, "last": late[-1]["rss"] / 1e6, "most": max(rss)},
        "growth_mb_per_hour": statistics.linear_regression(hours, rss).slope,
        "core_share": (samples[-1]["cpu_s"] - samples[0]["cpu_s"]) / seconds,
        "log_mb": samples[-1]["log"] / 1e6,
        "scrapes": len(scrapes),
        "last_scrape": scrapes[-1] if scrapes else {},
        "load": os.getloadavg()[1],
    }


def turns(minutes: float) -> dict[str, Any]:
    """Return the ratio of steps with a running watch to steps with a stopped one."""
    with tempfile.TemporaryDirectory() as name:
        run, recording = started(Path(name), minutes, "--depth", "surface", "--stop-after", "100000000")
        watch = watching(recording)
        switches = switched(watch, run, minutes)
        watch.send_signal(signal.SIGINT)
        watch.wait()
        run.wait()
        times = json.loads((Path(name) / "times.json").read_text())
    ends = list(accumulate(times["steps_s"], initial=times["began_s"]))[1:]
    return ratio(means(list(zip(ends, times["steps_s"], strict=True)), switches))


def switched(watch: psutil.Popen, run: subprocess.Popen[bytes], minutes: float) -> list[float]:
    """Stop and continue the watch until the program ends; return the times of the switches."""
    time.sleep(5)
    switches = []
    while run.poll() is None:
        watch.send_signal(signal.SIGCONT if len(switches) % 2 else signal.SIGSTOP)
        switches.append(time.perf_counter())
        time.sleep(STRETCH_S)
    watch.send_signal(signal.SIGCONT)
    return switches


def means(steps: list[tuple[float, float]], switches: list[float]) -> list[float | None]:
    """Return the mean step of each stretch; the first stretch is without the watch."""
    result: list[float | None] = []
    place = 0
    for begin in switches:
        while place < len(steps) and steps[place][0] < begin:
            place += 1
        until = place
        while until < len(steps) and steps[until][0] < begin + STRETCH_S:
            until += 1
        inside = [seconds for _, seconds in steps[place:until]]
        result.append(statistics.fmean(inside) if inside else None)
    return result


def ratio(stretches: list[float | None]) -> dict[str, Any]:
    """Return the median ratio of stretches with the watch to their neighbours, and its interval."""
    threes = (stretches[at - 1 : at + 2] for at in range(1, len(stretches) - 1, 2))
    ratios = [2 * with_ / (before + after) for before, with_, after in threes if before and with_ and after]
    draw = random.Random(0)
    drawn = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {
        "ratio": statistics.median(ratios), "ci": [drawn[50], drawn[1949]], "stretches": len(ratios),
        "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("soak", "turns"))
    parser.add_argument("--minutes", type=float, default=None)
    options = parser.parse_args()
    measure, usual = {"soak": (soak, 30.0), "turns": (turns, 5.0)}[options.what]
    result = {options.what: measure(options.minutes or usual)}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(kept | result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
