"""Damage to packed soundings: entries that no sounding has, false sizes, damaged bytes."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.values import Damage

NAMES = (
    *("../x.json", "/tmp/x.json", "a/../../x.json", "a\\..\\x.json", "C:\\x.json", "x.json/", "rank-0", ""),
    *(
        "rank-0/steps.parquet",
        "manifest.json",
        "manifest.json/x.json",
        "rank-0/\x1b[2J.json",
        "a" * 300 + ".json",
    ),
    *(
        "/".join(["d"] * 200) + "/x.json",
        "rank-0/nul\x00.json",
        "raw/x.json",
        "x.sh",
        "\u202egnp.json",
        "con.json",
    ),
)
MODES = (0, 0o100644, 0o120777, 0o010644, 0o020666, 0o060666, 0o040755, 0o104777)


def damages() -> st.SearchStrategy[Damage]:
    """One change to the archive."""
    return st.fixed_dictionaries(
        {
            "pack": st.sampled_from(
                ["entry", "entry", "entries", "bomb", "size", "count", "drop", "encrypted"]
            ),
            "name": st.sampled_from(NAMES),
            "mode": st.sampled_from(MODES),
            "at": st.integers(0, 1000),
            "value": st.sampled_from([0, 1, 2**16, 2**31, 2**32 - 2]),
        }
    )


def packed(folder: Path, file: Path, damage: list[Damage]) -> None:
    """Pack `folder` into `file` with the damage."""
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w") as archive:
        for number, path in enumerate(sorted(p for p in folder.rglob("*") if p.is_file())):
            if not any(change["pack"] == "drop" and change["at"] % 5 == number for change in damage):
                archive.write(path, path.relative_to(folder).as_posix())
        for change in damage:
            _add(archive, change)
    data = bytearray(file.read_bytes())
    for change in damage:
        _patch(data, change)
    file.write_bytes(data)


def _add(archive: zipfile.ZipFile, damage: Damage) -> None:
    name = damage["name"]
    if damage["pack"] == "entry":
        entry = zipfile.ZipInfo(name)
        entry.filename = name  # ZipInfo cuts names at a NUL
        entry.external_attr = damage["mode"] << 16
        archive.writestr(entry, "/etc/passwd")
    elif damage["pack"] == "entries":
        for number in range(3000):
            archive.writestr(f"{number % 7}/{number}.json", "{}")
    elif damage["pack"] == "bomb":
        archive.writestr(zipfile.ZipInfo("bomb.json"), bytes(1 << 24), zipfile.ZIP_DEFLATED)


def _patch(data: bytearray, damage: Damage) -> None:
    """Change a field of the central directory."""
    at = data.find(b"PK\x01\x02", damage["at"] * 7 % len(data))
    if damage["pack"] == "size" and at >= 0:
        data[at + 24 : at + 28] = damage["value"].to_bytes(4, "little")
    elif damage["pack"] == "encrypted" and at >= 0:
        data[at + 8] |= 1
    elif damage["pack"] == "count" and (end := data.rfind(b"PK\x05\x06")) >= 0:
        data[end + 8 : end + 12] = bytes([damage["at"] % 256]) * 4
