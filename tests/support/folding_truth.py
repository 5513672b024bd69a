"""Devices whose counters are known at every instant, and what sampling them would show."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fathom.sounding.schema import conform

EPOCH = 1_790_000_000_000_000_000
ACTIVE = "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed"


def counter(number: int) -> str:
    return f"SM_A.TriageCompute.sm__made_up_{number}.avg.pct_of_peak_sustained_elapsed"


@dataclass
class Truth:
    """Kernels of one device in bursts, and samples of counters that each family drives to its level."""

    levels: np.ndarray  # families x counters, in per cent; the first counter is the activity
    kernels: pl.DataFrame
    samples: pl.DataFrame
    names: list[str]
    shifts: dict[int, float]
    labels: list[str] = field(default_factory=list)


def program(random, families, steps, *, low_us=2.0, high_us=2000.0, idle_share=0.3, gap_us=5.0):
    """(start, end, family) in ns of `steps` repetitions of one sequence of kernels, durations log-uniform."""
    usual = 10 ** random.uniform(np.log10(low_us), np.log10(high_us), families) * 1e3
    order = random.permutation(np.repeat(np.arange(families), random.integers(1, 4, families)))
    rows, now = [], 0.0
    for _ in range(steps):
        for family in order:
            if random.random() < idle_share:
                now += random.exponential(gap_us * 1e3)
            length = usual[family] * random.uniform(0.97, 1.03)
            rows.append((round(now), round(now + length), int(family)))
            now += length
        now += random.exponential(20_000)
    return rows


def parts(rows, ramp):
    """(start, end, family, part of its level): nothing at first, half at last, each 30 % of it at most."""
    for start, end, family in rows:
        first, last = (min(length, 0.3 * (end - start)) for length in ramp)
        yield start + first, end - last, family, 1.0
        yield end - last, end, family, 0.5


def means(rows, levels, ramp):
    """Mean of each counter over the launches of each family."""
    total, time = np.zeros(levels.shape), np.zeros((len(levels), 1))
    for start, end, family, part in parts(rows, ramp):
        total[family] += part * (end - start) * levels[family]
    for start, end, family in rows:
        time[family] += end - start
    return total / np.maximum(time, 1)


def integrals(rows, levels, edges, ramp=(0, 0)):
    """Brute force: the integral of each counter between consecutive edges; what overlaps adds up."""
    pieces = list(parts(rows, ramp))
    points = np.unique(np.concatenate([edges, [r[0] for r in pieces], [r[1] for r in pieces]]))
    change = np.zeros((len(points), levels.shape[1]))
    for start, end, family, part in pieces:
        change[np.searchsorted(points, start)] += part * levels[family]
        change[np.searchsorted(points, end)] -= part * levels[family]
    rate = np.cumsum(change, axis=0)[:-1]
    total = np.vstack([np.zeros(levels.shape[1]), np.cumsum(rate * np.diff(points)[:, None], axis=0)])
    at = np.searchsorted(points, edges)
    return np.diff(total[at], axis=0)


def sampled(
    random,
    bursts,
    levels,
    *,
    interval_us=20.0,
    noise=2.0,
    reach_us=8.0,
    drift_ppm=0.0,
    names=None,
    ramp=(0, 0),
):
    """The truth of several bursts of (start, end, family) rows, each sampled with its own clock."""
    stored = means(bursts[0], levels, ramp)
    names = names or [ACTIVE, *(counter(k) for k in range(levels.shape[1] - 1))]
    labels = [f"family_{k} {k + 1}x1x1·128x1x1" for k in range(len(levels))]
    kernels, samples, shifts = [], [], {}
    for burst, rows in enumerate(bursts):
        begin = EPOCH + burst * 10**10
        shift = shifts[burst] = float(round(random.uniform(-reach_us, reach_us) * 1e3))
        step = interval_us * 1e3
        last = max(end for _, end, _ in rows)
        edges = np.round(np.arange(random.uniform(-3 * step, 0), last + 3 * step, step)).astype(np.int64)
        mean = integrals(rows, levels, edges, ramp) / np.diff(edges)[:, None]
        values = mean * (1 + random.normal(0, noise / 50, mean.shape))
        drift = np.round(drift_ppm * 1e-6 * (edges - edges[len(edges) // 2])).astype(np.int64)
        clock = edges + begin - int(shift) - drift
        samples.append(sample_rows(clock, values, burst))
        kernels += [kernel_row(labels[f], begin + s, begin + e, burst, i) for i, (s, e, f) in enumerate(rows)]
    table = conform("kernels", pl.DataFrame(kernels, infer_schema_length=None))
    return Truth(stored if any(ramp) else levels, table, pl.concat(samples), names, shifts, labels)


def sample_rows(edges, values, burst, group=0, device=0):
    return conform(
        "samples",
        pl.DataFrame(
            {
                "device": device,
                "group": group,
                "start_ns": edges[:-1],
                "end_ns": edges[1:],
                "values": values.astype(np.float32).tolist(),
                "phase": "counters",
                "burst": burst,
            }
        ),
    )


def kernel_row(family, start, end, burst, stream=7, **more):
    return {
        "device": 0, "stream": stream, "kind": "compute", "name": family.split()[0],
        "family": family, "start_ns": int(start), "end_ns": int(end), "phase": "counters", "burst": burst,
        **more,
    }  # fmt: skip


def courses(random, bursts, profile, *, interval_us=20.0, clock=None, reach_us=8.0, gap_us=1.2):
    """Bursts of launches whose counters follow a course: `profile(label, ns since its start, length)`.

    `clock(label)` is the multiprocessors' in Hz; a sample is a mean over cycles, and the last counter their
    number a second. Returns the tables and, by label, the mean over the cycles of all launches.
    """
    step, fine = interval_us * 1e3, 100  # ns: the course is followed in steps of 100
    kernels, samples, total, cycles = [], [], {}, {}
    for burst, rows in enumerate(bursts):
        begin, shift, now = EPOCH + burst * 10**10, random.uniform(-reach_us, reach_us) * 1e3, 0
        values, ticks = [], []
        for label, length in rows:
            times = np.arange(0, length, fine)
            own = profile(label, times, length)
            hertz = np.full(len(times), clock(label) if clock else 2e9)
            kernels.append(
                kernel_row(label, begin + now, begin + now + len(times) * fine, burst, len(kernels))
            )
            gap = int(random.choice((gap_us, 30.0)) * 1e3 / fine)
            values += [own, np.zeros((gap, own.shape[1]))]
            ticks += [hertz, np.full(gap, 2e9)]
            total[label] = total.get(label, 0.0) + (own * hertz[:, None]).sum(axis=0)
            cycles[label] = cycles.get(label, 0.0) + hertz.sum()
            now += (len(times) + gap) * fine
        rate, hertz = np.concatenate(values), np.concatenate(ticks)
        per = int(step / fine)
        first = int(random.integers(0, per))
        count = (len(rate) - first) // per
        cut = slice(first, first + count * per)
        of = hertz[cut].reshape(count, per)
        mean = (rate[cut].reshape(count, per, -1) * of[:, :, None]).sum(axis=1) / of.sum(axis=1)[:, None]
        seen = np.column_stack((mean * random.normal(1, 0.005, mean.shape), of.mean(axis=1)))
        edges = np.round(begin - shift + first * fine + step * np.arange(count + 1)).astype(np.int64)
        samples.append(sample_rows(edges, seen, burst))
    truths = {label: total[label] / cycles[label] for label in total}
    return conform("kernels", pl.DataFrame(kernels, infer_schema_length=None)), pl.concat(samples), truths
