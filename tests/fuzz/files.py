"""Damage to single files as data: values in JSON documents and JSON lines, bytes, and kinds of files."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz import databases
from tests.fuzz.values import FLOATS, INTEGERS, TEXTS, Damage

_json = st.recursive(
    st.sampled_from([None, True, *INTEGERS, 10**30, *FLOATS[:5], *TEXTS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(TEXTS), inner, max_size=3),
    max_leaves=5,
)
_place = st.integers(0, 100_000)
TAGS = ("t", "cat")  # keys whose values are kinds of records
LARGE, LARGEST = 16 << 20, 80 << 20  # bytes: a larger file is damaged no more; a list grows to at most this


def values_in(*names: str) -> st.SearchStrategy[Damage]:
    """Damage to the n-th value of a JSON document or of JSON lines.

    Most values are in long lists of alike records, so `among` keys, each key is as likely as another.
    """
    return st.fixed_dictionaries(
        {
            "file": st.sampled_from(names),
            "at": _place,
            "among": st.sampled_from(["values", "keys"]),
            "do": st.sampled_from(["replace", "replace", "remove", "rename", "many"]),
            "value": _json,
        }
    )


def cells_of(*names: str) -> st.SearchStrategy[Damage]:
    """Damage to a CSV: a cell gets another value, or a column is removed."""
    return st.fixed_dictionaries(
        {
            "file": st.sampled_from(names),
            "at": _place,
            "do": st.sampled_from(["cell", "cell", "column"]),
            "value": st.sampled_from([*map(str, INTEGERS), *map(str, FLOATS), *TEXTS, "9" * 400]),
        }
    )


def bytes_of(*names: str) -> st.SearchStrategy[Damage]:
    """Damage to the bytes of a file: cut, flipped, inserted, emptied, or another kind of file."""
    return st.fixed_dictionaries(
        {
            "file": st.sampled_from(names),
            "at": _place,
            "do": st.sampled_from(
                [
                    "cut",
                    "flip",
                    "insert",
                    "insert",
                    "twice",
                    "empty",
                    "folder",
                    "fifo",
                    "zero",
                    "loop",
                    "gone",
                    "gzip",
                ]
            ),
            "value": st.sampled_from([*TEXTS, "\n", ",", '"', "}", "NaN", "-", "\ufeff", "0" * 400]),
        }
    )


def apply(file: Path, damage: Damage) -> None:
    """Make the damage; a missing file stays missing, and a large one unchanged."""
    if not file.is_file() or file.is_symlink() or file.stat().st_size > LARGE:
        return
    if damage["do"] in ("replace", "remove", "rename", "many"):
        _value(file, damage)
    elif damage["do"] in ("cell", "column"):
        _cell(file, damage)
    elif damage["do"].startswith(databases.PREFIX):
        databases.apply(file, damage)
    elif damage["do"] in ("cut", "flip", "insert", "twice", "empty", "gzip"):
        file.write_bytes(_bytes(file.read_bytes(), damage))
    else:
        file.unlink()
        other_kind(file, damage["do"])


def other_kind(file: Path, kind: str) -> None:
    """Make a file that is none, where nothing is; "gone" makes nothing."""
    if kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    elif kind == "loop":
        file.symlink_to(file.name)


def _bytes(data: bytes, damage: Damage) -> bytes:
    at = damage["at"] * 997 % (len(data) + 1)
    text = str(damage["value"]).encode(errors="replace")
    if damage["do"] == "flip":
        return data[:at] + bytes(byte ^ 1 << damage["at"] % 8 for byte in data[at : at + 1]) + data[at + 1 :]
    return {
        "cut": data[:at],
        "insert": data[:at] + text + data[at:],
        "twice": data * 2,
        "empty": b"",
        "gzip": gzip.compress(data, 1),
    }[damage["do"]]


def _cell(file: Path, damage: Damage) -> None:
    text = file.read_text(errors="replace")
    rows = [[row] if row.startswith("==") else next(csv.reader([row]), []) for row in text.splitlines()]
    wide = [row for row in rows if len(row) > 1]
    if not wide:
        return
    if damage["do"] == "column":
        for row in wide:
            del row[damage["at"] % len(wide[0]) : damage["at"] % len(wide[0]) + 1]
    else:
        row = wide[damage["at"] % len(wide)]
        row[damage["at"] // len(wide) % len(row)] = str(damage["value"])
    with file.open("w", newline="") as out:
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows(wide)


def _value(file: Path, damage: Damage) -> None:
    lines = file.suffix == ".jsonl"
    text = file.read_text(errors="replace")
    try:
        content = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    except (ValueError, RecursionError):
        return  # damaged already
    if places := list(_places(content)):
        _change(*_chosen(places, damage), damage)
    file.write_text("".join(json.dumps(row) + "\n" for row in content) if lines else json.dumps(content))


def _chosen(places: list[tuple[Any, Any, str]], damage: Damage) -> tuple[Any, Any]:
    number = damage["at"]
    if damage.get("among") == "keys":
        alike: dict[str, list[tuple[Any, Any, str]]] = {}
        for place in places:
            alike.setdefault(place[2], []).append(place)
        number, chosen = divmod(number, len(alike))
        places = list(alike.values())[chosen]
    return places[number % len(places)][:2]


def _change(holder: Any, key: Any, damage: Damage) -> None:
    if damage["do"] == "replace":
        holder[key] = damage["value"]
    elif damage["do"] == "remove":
        del holder[key]
    elif damage["do"] == "rename" and isinstance(holder, dict):
        holder[str(damage["value"])[:1000]] = holder.pop(key)
    elif damage["do"] == "many" and isinstance(holder[key], list):
        holder[key] = holder[key] * min(2_000, LARGEST // len(json.dumps(holder[key])))


def _places(content: Any) -> Iterator[tuple[Any, Any, str]]:
    """Yield each container, key and path in a JSON value, outermost first; a list has one path for all."""
    waiting = deque([(content, "")])
    while waiting:
        holder, path = waiting.popleft()
        named = isinstance(holder, dict)
        kind = next((str(holder[tag]) for tag in TAGS if tag in holder), "") if named else ""
        for key in list(holder) if named else range(len(holder)):
            below = f"{path}/{kind}.{key}" if named else f"{path}/*"
            yield holder, key, below
            if isinstance(holder[key], dict | list):
                waiting.append((holder[key], below))
