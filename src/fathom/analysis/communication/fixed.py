"""The fixed time of a collective: the part of its length that its bytes do not explain.

A collective of b bytes takes a + b / bandwidth. Merging k of them saves k - 1 times the fixed time a, and
splitting one into k costs as much. On a host, each collective also wakes threads, which wait for a core if
others use it. That time does not depend on the bytes either, so it belongs to the fixed time, and only
collectives that nothing delays show the bandwidth.
"""

from __future__ import annotations

import msgspec
import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.intervals import Array
from fathom.units import KIB, MIB

SPREAD = 4.0  # largest size over smallest: below it, lengths do not separate latency from bandwidth
DRAWS = 200
# Bytes that take as long as the fixed time: (low, usual, high), used if all collectives have about one size.
# NCCL reaches half of its bandwidth at about 1 MB, gloo between processes of one host at about 0.3 MB.
OF_DEVICES = (256 * KIB, MIB, 4 * MIB)
OF_HOSTS = (64 * KIB, 256 * KIB, 4 * MIB)  # a busy host pays more to wake the threads of each
UNDELAYED = 0.25  # quantile of the lengths of one size
# At most these, for NCCL, whose collectives may also wait for peers that are unknown.
MOST_NS = (10_000.0, 50_000.0, 200_000.0)


class FixedTime(msgspec.Struct, frozen=True):
    """The fixed time of one collective in ns with an interval; `fitted` from lengths of several sizes."""

    ns: float
    low: float
    high: float
    fitted: bool

    def bound(self, name: str) -> float:
        """Return the bound `low` or `high`, or else the usual value."""
        return {"low": self.low, "high": self.high}.get(name, self.ns)


def fixed_time(sizes: Array, lengths: Array, on_host: bool) -> FixedTime:
    """Return the fixed time of collectives of one operation, from their bytes and lengths in ns.

    It is fitted to means by size if sizes differ enough, else taken from the half-bandwidth sizes above. On a
    host, both are of undelayed collectives. The delays are added, but not to the lower bound.
    """
    delay = 0.0
    if on_host:
        undelayed = _undelayed(sizes, lengths)
        delay, lengths = float(np.mean(lengths - undelayed)), undelayed
    fixed = _of_lengths(sizes, lengths, on_host)
    return msgspec.structs.replace(fixed, ns=fixed.ns + delay, high=fixed.high + delay)


def _undelayed(sizes: Array, lengths: Array) -> Array:
    """Return the lengths, each limited to the UNDELAYED quantile of the collectives of its size."""
    usual = {size: np.quantile(lengths[sizes == size], UNDELAYED) for size in distinct(sizes).tolist()}
    return np.minimum(lengths, np.array([usual[size] for size in sizes.tolist()]))


def _of_lengths(sizes: Array, lengths: Array, on_host: bool) -> FixedTime:
    if sizes.max() < SPREAD * sizes.min():
        size, length = float(np.mean(sizes)), float(np.mean(lengths))
        low, usual, high = (length * half / (size + half) for half in (OF_HOSTS if on_host else OF_DEVICES))
        if not on_host:
            low, usual, high = map(min, (low, usual, high), MOST_NS)
        return FixedTime(usual, low, high, fitted=False)
    draw = np.random.default_rng(0)
    usual = _intercept(sizes, lengths)
    drawn = [draw.integers(0, len(sizes), len(sizes)) for _ in range(DRAWS)]
    fits = [_intercept(sizes[rows], lengths[rows]) for rows in drawn if np.ptp(sizes[rows]) > 0]
    low, high = np.percentile([usual, *fits], [2.5, 97.5])
    return FixedTime(usual, min(float(low), usual), max(float(high), usual), fitted=True)


def _intercept(sizes: Array, lengths: Array) -> float:
    """Return the constant of the line through the mean length of each size, fitted on relative errors."""
    different = distinct(sizes)
    usual = np.array([np.mean(lengths[sizes == size]) for size in different])
    weight = np.sqrt([np.count_nonzero(sizes == size) for size in different]) / usual
    line = np.column_stack((np.ones(len(different)), different)) * weight[:, None]
    constant, slope = np.linalg.lstsq(line, usual * weight, rcond=None)[0]
    if slope < 0:  # lengths do not grow with the bytes
        return float(usual.min())
    return float(np.clip(constant, 0.0, usual.min()))


def shared_out(starts: Array, ends: Array) -> Array:
    """Return the time in ns of each collective, if those that run at the same instant share it equally."""
    marks = distinct(np.concatenate((starts, ends)))
    if len(marks) < 2:
        return (ends - starts).astype(float)
    first, last = np.searchsorted(marks, starts), np.searchsorted(marks, ends)
    count = np.cumsum(np.bincount(first, minlength=len(marks)) - np.bincount(last, minlength=len(marks)))
    each = np.diff(marks) / np.maximum(count[:-1], 1)
    sums = np.concatenate(([0.0], np.cumsum(each)))
    return sums[last] - sums[first]
