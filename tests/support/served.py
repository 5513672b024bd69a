"""Kept recordings of servers, with what their clients saw."""

from __future__ import annotations

import tarfile
from pathlib import Path

from fathom.sounding import import_raw
from tests.support.paths import DATA


def unpacked(name: str, folder: Path) -> Path:
    """Unpack an engine's recording into `folder`, and import it there as `made.fathom`; return the folder."""
    with tarfile.open(DATA / "serving" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    import_raw(folder / "serve.fathom", folder / "made.fathom")
    return folder
