"""CSV of ncu: `--page raw` (a row a launch), the details page (a row a metric), and summaries of launches."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fathom.data import load
from fathom.sounding.ncu.launch import DURATION, Launch
from fathom.sounding.ncu.lines import bad, read_lines
from fathom.sounding.ncu.numbers import TwoNotationsError, decimal_mark, is_absent, plain, to_float
from fathom.sounding.ncu.units import base_unit

_DATA = re.compile(r'"?\d+"?,')
_METRIC = re.compile(r"[\w:.]*[a-z0-9]__[\w:.]+")
_ERROR = re.compile(r"==ERROR==\s*(.*)")
HOW = "export it with `ncu --import X.ncu-rep --page raw --csv`"


@dataclass
class CsvFile:
    """What a file of ncu's CSV holds; `strange` lines were none of ncu's (the program's own output)."""

    path: Path
    launches: dict[tuple[int, str, str], Launch] = field(default_factory=dict)
    strange: int = 0
    errors: list[str] = field(default_factory=list)  # what ncu itself said of errors
    _header: list[str] = field(default_factory=list)
    _tables: int = 0
    _units: list[str] | None = None
    _raw: list[tuple[Launch, str, str, str]] = field(default_factory=list)  # launch, metric, text, unit


def read_csv(path: Path) -> CsvFile:
    """The launches in a file of ncu's CSV. Raises BadInputError where it holds none, or is damaged."""
    found = CsvFile(path)
    for line in read_lines(path):
        if line.startswith("=="):
            found.errors += _ERROR.findall(line)
        elif line.strip():
            _take(found, line)
    if not found._header:
        raise bad(path, f"it is no CSV of ncu (no header with Kernel Name){_said(found)}; {HOW}")
    _convert(found)
    if not any(launch.values for launch in found.launches.values()):
        raise bad(path, f"it holds no launch with a value{_said(found)}; profile again, and {HOW}")
    return found


def _said(found: CsvFile) -> str:
    return f" (ncu said: {found.errors[0].strip().rstrip('.')})" if found.errors else ""


def _take(found: CsvFile, line: str) -> None:
    try:
        fields = next(csv.reader([line], strict=True, skipinitialspace=True))
    except csv.Error:
        fields = []
    if "Kernel Name" in fields:
        _begin(found, [name.strip() for name in fields])
    elif not found._header:
        found.strange += 1
    elif len(fields) == len(found._header) and (_DATA.match(line) or not fields[0]):
        _row(found, fields)
    elif _DATA.match(line):
        raise bad(found.path, f"its row {line[:40]!r} is damaged or cut off; export it again")
    else:
        found.strange += 1


def _begin(found: CsvFile, header: list[str]) -> None:
    if found._header and _form(header) != _form(found._header):
        raise bad(found.path, f"it mixes two pages of ncu; give one file a page, or {HOW}")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise bad(found.path, f"its column {twice} stands there twice; export it again")
    if _form(header) != "summary" and "ID" not in header:
        raise bad(found.path, f"its column ID is gone, which tells its launches apart; {HOW}")
    found._header, found._units = header, None
    found._tables += 1


def _form(header: list[str]) -> str:
    if "Metric Name" not in header:
        return "raw"
    return "details" if "Metric Value" in header else "summary"


def _row(found: CsvFile, fields: list[str]) -> None:
    row = dict(zip(found._header, (field.strip() for field in fields), strict=True))
    form = _form(found._header)
    if form == "raw":
        _raw_row(found, fields, row)
    elif row["Metric Name"]:
        value = row.get("Metric Value" if form == "details" else "Average", "")
        launch = _launch(found, row)
        found._raw.append((launch, _metric(row), value, row.get("Metric Unit", "")))


def _raw_row(found: CsvFile, fields: list[str], row: dict[str, str]) -> None:
    if not row.get("Kernel Name"):
        found._units = fields
        return
    if found._units is None:
        raise bad(found.path, f"its row of units is gone; {HOW}")
    launch = _launch(found, row)
    for (name, text), unit in zip(row.items(), found._units, strict=True):
        if _METRIC.fullmatch(name):
            found._raw.append((launch, name, text, unit))


def _launch(found: CsvFile, row: dict[str, str]) -> Launch:
    own = row.get("ID") or f"{row['Kernel Name']} {row.get('Grid Size')} {row.get('Block Size')}"
    key = (found._tables, row.get("Process ID", ""), own)
    if key not in found.launches:
        found.launches[key] = Launch(
            name=row["Kernel Name"],
            pid=_whole(row.get("Process ID")),
            host=row.get("Host Name") or None,
            device=_whole(row.get("Device")) or 0,
            stream=_whole(row.get("Stream")),
            grid=_dims(row.get("Grid Size")),
            block=_dims(row.get("Block Size")),
            count=_whole(row.get("Invocations")) or 1,
            texts={"cc": row["CC"]} if row.get("CC") else {},
        )
    return found.launches[key]


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _dims(text: str | None) -> str | None:
    """`(64, 1, 1)` as 64x1x1."""
    return "x".join(re.findall(r"\d+", text or "")) or None


def _metric(row: dict[str, str]) -> str:
    """A metric's own name; for a label of the details page, from the table of labels."""
    label, section = row["Metric Name"], row.get("Section Name", "")
    if "__" in label:
        return label.rpartition("(")[2].rstrip(")") if "(" in label else label
    return _labels().get(section, {}).get(label) or (f"{section}: {label}" if section else label)


@cache
def _labels() -> dict[str, dict[str, str]]:
    return load(__package__, "labels")


def _convert(found: CsvFile) -> None:
    """Texts become values, once all of them have told how this machine writes numbers."""
    numbers = {text: plain(text) for _, _, text, _ in found._raw}
    try:
        mark = decimal_mark(number for number in numbers.values() if number)
        values = {text: to_float(number, mark) for text, number in numbers.items() if number}
    except TwoNotationsError:
        raise bad(
            found.path, "its numbers use both 1,234.5 and 1.234,5; give one file of one machine"
        ) from None
    except ValueError:
        raise bad(found.path, "it holds a number that cannot be read; export it again") from None
    for launch, metric, text, unit in found._raw:
        if text in values:
            scale, base = base_unit(unit)
            if metric == DURATION and base != "s":
                raise bad(found.path, f"its {DURATION} is in '{unit}', which is no unit of time; {HOW}")
            launch.values[metric], launch.units[metric] = values[text] * scale, base
        elif is_absent(text):
            launch.absent.add(metric)
        else:
            launch.texts[metric] = text
    found._raw.clear()
