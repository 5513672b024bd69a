"""Find the hot spots of kernels: samples of the program counter by instruction and source line."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from fathom.sounding.manifest import HotSpot
from fathom.sounding.ncu.launch import Spot

MOST = 20  # source lines, and instructions, kept per family
_STALLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(\w+?)")
# ncu's counts of wasted work per instruction, and their names.
WASTE = {
    "derived__memory_l2_theoretical_sectors_global_excessive": "needless sectors",
    "derived__memory_l1_wavefronts_shared_excessive": "needless shared wavefronts",
}


def spots_of(action: Any) -> list[Spot]:
    """Return the sampled instructions of a launch."""
    reasons: defaultdict[int, Counter[str]] = defaultdict(Counter)
    waste: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for name in action.metric_names():
        stalled = _STALLED.fullmatch(name)
        if stalled and not name.endswith("_not_issued"):
            _add(reasons, stalled[1], action.metric_by_name(name))
        elif name in WASTE:
            _add(waste, WASTE[name], action.metric_by_name(name))
    sources = _sources(action)
    places = sorted(reasons.keys() | waste.keys())
    return [_spot(action, place, reasons[place], waste[place], sources) for place in places]


def _add(counts: defaultdict[int, Counter[str]], word: str, metric: Any) -> None:
    if metric is None or not metric.num_instances() or not metric.has_correlation_ids():
        return
    places = metric.correlation_ids()
    for number in range(metric.num_instances()):
        count = metric.as_double(number)
        if count:
            counts[places.as_uint64(number)][word] += count


def _sources(action: Any) -> dict[str, list[str]]:
    files = action.source_files() if hasattr(action, "source_files") else {}
    return {name: str(text or "").splitlines() for name, text in dict(files or {}).items()}


def _spot(
    action: Any, place: int, reasons: Counter[str], waste: Counter[str], sources: dict[str, list[str]]
) -> Spot:
    about = action.source_info(place)
    file, line = (about.file_name(), int(about.line())) if about else (None, None)
    lines = sources.get(file or "", [])
    sass = str(action.sass_by_pc(place) or "").strip()
    source = lines[line - 1].strip() if line and line <= len(lines) else None
    return Spot(sass, file, line, source, dict(reasons), dict(waste))


def hot_spots(family: str, spots: Sequence[Spot]) -> list[HotSpot]:
    """Return the MOST hottest instructions and source lines of a family, over all its launches."""
    total = sum(sum(spot.reasons.values()) for spot in spots)
    lines = [(f"{PurePath(s.file).name}:{s.line}", s.source or "", s) for s in spots if s.file]
    levels = {"sass": [(s.sass, s.sass, s) for s in spots if s.sass], "source": lines}
    hottest = []
    for level, named in levels.items():
        every = _summed(family, level, named, total)
        hottest += sorted(every, key=lambda spot: (-spot.samples, spot.where))[:MOST]
    return hottest


def _summed(family: str, level: str, named: list[tuple[str, str, Spot]], total: float) -> Iterator[HotSpot]:
    texts: dict[str, str] = {}
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    waste: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for where, text, spot in named:
        texts.setdefault(where, text)
        reasons[where].update(spot.reasons)
        waste[where].update(spot.waste)
    for where, text in texts.items():
        samples = sum(reasons[where].values())
        share = samples / total if total else 0.0
        stalls: dict[str, float] = dict(reasons[where].most_common(4))
        yield HotSpot(family, level, where, text, samples, share, stalls, {**waste[where]})
