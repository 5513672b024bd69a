"""Ranks of a job that a sounding lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from fathom.sounding.manifest import Manifest, Problem
from fathom.units import ranges

RANKS_MISSING = "ranks-missing"  # id of the problem
MOST_LISTED = 1_000_000  # ranks of a job whose missing ones are listed
REMOVED = "was removed from the sounding"


def without_removed_ranks(manifest: Manifest, folder: Path) -> Manifest:
    """Return the manifest without the ranks whose folders are gone, which it then names as missing.

    If all are gone, it is returned as it is, and its tables cannot be read.
    """
    folders = {file.partition("/")[0] for file in manifest.checksums}
    gone = {name for name in folders if not (folder / name).exists()}
    count = len(manifest.ranks)
    left = [rank for rank in manifest.ranks if f"rank-{rank.rank}" not in gone]
    if not left or len(left) == count:
        return manifest
    left = [msgspec.structs.replace(rank, world=rank.world or count) for rank in left]
    kept = msgspec.structs.replace(
        manifest,
        ranks=left,
        phases=[phase for phase in manifest.phases if f"rank-{phase.rank}" not in gone],
        problems=[problem for problem in manifest.problems if problem.what != RANKS_MISSING],
        checksums={f: crc for f, crc in manifest.checksums.items() if f.partition("/")[0] not in gone},
    )
    removed: dict[int | str, str] = {
        rank.rank: REMOVED for rank in manifest.ranks if f"rank-{rank.rank}" in gone
    }
    note_missing_ranks(kept, removed)
    return kept


def note_missing_ranks(manifest: Manifest, reasons: Mapping[int | str, str] = MappingProxyType({})) -> None:
    """Add a problem if ranks are missing from the manifest; `reasons` say why ranks have no steps."""
    world = max((rank.world or 0 for rank in manifest.ranks), default=0)
    missing = world - len(manifest.ranks)
    if missing > 0:
        verb = "is" if missing == 1 else "are"
        text = (
            f"{missing} of the job's {world} ranks {verb} missing, "
            "so waiting for peers is counted as communication."
        )
        text += _which(manifest, world, reasons)
        manifest.problems.append(Problem(RANKS_MISSING, text, missing))


def _which(manifest: Manifest, world: int, reasons: Mapping[int | str, str]) -> str:
    """Return the missing ranks as a sentence, with the known reasons."""
    if world > MOST_LISTED:
        return ""
    missing = set(range(world)) - {rank.rank for rank in manifest.ranks}
    known = [
        f"{f'rank {who}' if isinstance(who, int) else who} {why}"
        for who, why in reasons.items()
        if not isinstance(who, int) or who in missing
    ]
    return (
        f" Missing: {ranges(missing, ', ')}{' (' if known else ''}{'; '.join(known)}{')' if known else ''}."
    )
