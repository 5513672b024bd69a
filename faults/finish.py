"""From raw records of the suite to the soundings that are kept."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from faults import kept

MOST_BYTES = 15_000_000  # of all that is kept together
RAW, TIMES = "run.fathom", "times.json"
KEPT = {"form", "severity", "fault", "steps", "loss", "median_ms", "mean_ms"}  # kept of a program's own words
Made = tuple[str, dict[str, Any] | str]


def finish(tars: list[Path], into: Path) -> int:
    """Keep what was recorded in folders or tars of runs; 1 where it is too large or one failed."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made, soundings = Path(scratch) / "made", Path(scratch) / "soundings"
        soundings.mkdir(parents=True)
        with ProcessPoolExecutor() as pool:
            by_name = dict(pool.map(partial(made_of, into=soundings), runs(tars, made)))
        kept.keep(into, sorted(soundings.iterdir()))
    if not by_name:
        print(f"no runs (*{kept.ENDING}) in {', '.join(map(str, tars))}")
        return 1
    failed = {name: why for name, why in by_name.items() if isinstance(why, str)}
    for name, why in failed.items():
        print(f"{name}: {why}")
    index_file = into / "index.json"
    index = json.loads(index_file.read_text()) if index_file.exists() else {}
    index |= {name: words for name, words in by_name.items() if name not in failed}
    index_file.write_text(json.dumps(dict(sorted(index.items())), indent=1) + "\n")
    total = sum(archive.stat().st_size for archive in kept.archives(into))
    size = f"{total / 1e6:.1f} MB of at most {MOST_BYTES / 1e6:.0f}"
    print(f"{len(index)} soundings, {size}; {len(failed)} failed")
    return int(bool(failed) or total > MOST_BYTES)


def runs(paths: list[Path], scratch: Path) -> Iterator[Path]:
    """The archives of single runs, out of tars or folders of them."""
    for number, path in enumerate(paths):
        folder = path
        if path.is_file():
            folder = scratch / str(number)
            with tarfile.open(path) as tar:
                tar.extractall(folder, filter="data")
        yield from sorted(folder.glob("*" + kept.ENDING))


def made_of(archive: Path, into: Path) -> Made:
    """Make a sounding of a run: its name, and what its program said of itself, or why that failed."""
    name = archive.name.removesuffix(kept.ENDING)
    try:
        return name, _made(archive, name, into)
    except Exception as error:  # of one recording: the others are still of use
        return name, f"{type(error).__name__}: {error}"


def _made(archive: Path, name: str, into: Path) -> dict[str, Any]:
    from fathom.recorder import folded, import_any

    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as tar:
            tar.extractall(scratch, filter="data")
        folder = Path(scratch) / name
        store = folded(import_any([folder / RAW]), folder / "folded.fathom")
        plain(store.path)
        store.path.rename(into / name)
        document = json.loads((folder / TIMES).read_text())
    return {key: value for key, value in document.items() if key in KEPT}


def plain(folder: Path) -> None:
    """Write a sounding's tables anew, uncompressed for an archive that compresses them, and its checksums."""
    import polars as pl

    from fathom.sounding.store import checksum

    for file in folder.glob("rank-*/*.parquet"):
        pl.read_parquet(file).write_parquet(file, compression="uncompressed", statistics=False)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["checksums"] = {name: checksum(folder / name) for name in manifest["checksums"]}
    (folder / "manifest.json").write_text(json.dumps(manifest, separators=(",", ":")))
