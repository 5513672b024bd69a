"""Read and check the manifest of a sounding that may come from anyone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from fathom.errors import NotASoundingError, file_error
from fathom.regular import read_regular
from fathom.sounding.manifest import Manifest, RankFacts
from fathom.sounding.schema import FORMAT, MOST_NS

MANIFEST = "manifest.json"
EMPTY_RANKS = 128  # ranks without tables that a manifest may name
_TABLE = re.compile(r"rank-\d{1,9}/\w{1,64}\.parquet", re.ASCII)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of the sounding in `folder`. Raises NotASoundingError if it is not a valid one."""
    file = folder / MANIFEST
    try:
        data = read_regular(file)
    except FileNotFoundError:
        raise NotASoundingError(_why_missing(folder)) from None
    except OSError as error:
        raise NotASoundingError(file_error(file, error)) from None
    _require_format(file, data)
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        for rank in manifest.ranks:
            msgspec.convert(rank.facts, RankFacts)
    except (msgspec.ValidationError, RecursionError) as error:
        raise NotASoundingError(f"{file} is damaged: {error}.") from None
    if why := _contradiction(folder, manifest):
        raise NotASoundingError(f"{file} is damaged: {why}; record or import it again.")
    return manifest


def _why_missing(folder: Path) -> str:
    if not folder.exists():
        return f"{folder} does not exist; give a sounding: a directory NAME.fathom, or a packed .fathom.zip."
    if (folder / "raw").is_dir():
        return f"{folder} has only raw records; turn it into a sounding with `fathom import {folder}`."
    if any(folder.glob("part-*.fathom*")):
        return f"{folder} has the parts of a job; join them with `fathom merge {folder} -o job.fathom`."
    remedy = "give a folder that `fathom run` or `fathom import` wrote"
    return f"{folder} is not a sounding: it has no {MANIFEST}; {remedy}."


def _require_format(file: Path, data: bytes) -> None:
    try:
        version = msgspec.json.decode(data, type=dict[str, object]).get("format")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotASoundingError(
            f"{file} is damaged: it is not valid JSON; record or import it again."
        ) from None
    if not isinstance(version, int):
        raise NotASoundingError(f"{file} has no format version, so it is not the manifest of a sounding.")
    if version > FORMAT:
        raise NotASoundingError(
            f"{file.parent} has format {version} and this Fathom reads up to {FORMAT}; upgrade fathom-perf."
        )


def _contradiction(folder: Path, manifest: Manifest) -> str | None:
    """Return why the manifest cannot describe this folder; None if it can."""
    ranks = [rank.rank for rank in manifest.ranks]
    if len(set(ranks)) < len(ranks) or min(ranks, default=0) < 0:
        return "its ranks are not distinct numbers from 0"
    if len(ranks) > EMPTY_RANKS + len(os.listdir(folder)):  # noqa: PTH208 - only their number is needed
        return f"it names {len(ranks):,} ranks, most of which have no tables"
    if strange := next((file for file in manifest.checksums if not _TABLE.fullmatch(file)), None):
        return f"it has a checksum of '{strange}', which is not a table"
    if any({"what", "why"} - row.keys() for row in manifest.abstained):
        return "a skipped analysis lacks its reason"
    times = [manifest.created_ns, *(ns for phase in manifest.phases for ns in (phase.start_ns, phase.end_ns))]
    if any(abs(time) > MOST_NS for time in times):
        return "one of its times is impossible"
    return None
