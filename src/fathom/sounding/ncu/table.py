"""Read ncu's CSV: `--page raw` (a row per launch), the details page (a row per metric), and summaries."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from fathom.data import load
from fathom.errors import unimportable
from fathom.sounding.ncu.launch import DURATION, Launch
from fathom.sounding.ncu.lines import read_lines
from fathom.sounding.ncu.numbers import TwoNotationsError, base_unit, decimal_mark, is_absent, plain, to_float

_DATA = re.compile(r'"?\d+"?,')
_METRIC = re.compile(r"[\w:.]*[a-z0-9]__[\w:.]+")
_ERROR = re.compile(r"==ERROR==\s*(.*)")
_labels = cache(partial(load, __package__, "labels"))
HOW = "export it with `ncu --import X.ncu-rep --page raw --csv`"


@dataclass
class CsvFile:
    """The contents of ncu's CSV; `strange` is the number of lines that are the program's own output."""

    path: Path
    launches: dict[tuple[int, str, str], Launch] = field(default_factory=dict)
    strange: int = 0
    errors: list[str] = field(default_factory=list)  # ncu's own error messages
    _header: list[str] = field(default_factory=list)
    _tables: int = 0
    _units: list[str] | None = None
    _raw: list[tuple[Launch, str, str, str]] = field(default_factory=list)  # launch, metric, text, unit


def read_csv(path: Path) -> CsvFile:
    """Read the launches of a CSV file of ncu. Raises BadInputError if it has none or is damaged."""
    file = CsvFile(path)
    for line in read_lines(path):
        if line.startswith("=="):
            file.errors += _ERROR.findall(line)
        elif line.strip():
            _take(file, line)
    if not file._header:
        raise unimportable(path, f"it is not a CSV of ncu (no header with Kernel Name){_said(file)}; {HOW}")
    _convert(file)
    if not any(launch.values for launch in file.launches.values()):
        raise unimportable(path, f"it has no launch with a value{_said(file)}; profile again, and {HOW}")
    return file


def _said(file: CsvFile) -> str:
    return f" (ncu said: {file.errors[0].strip().rstrip('.')})" if file.errors else ""


def _take(file: CsvFile, line: str) -> None:
    try:
        fields = next(csv.reader([line], strict=True, skipinitialspace=True))
    except csv.Error:
        fields = []
    if "Kernel Name" in fields:
        _begin(file, [name.strip() for name in fields])
    elif not file._header:
        file.strange += 1
    elif len(fields) == len(file._header) and (_DATA.match(line) or not fields[0]):
        _row(file, fields)
    elif _DATA.match(line):
        raise unimportable(file.path, f"its row {line[:40]!r} is damaged or cut off; export it again")
    else:
        file.strange += 1


def _begin(file: CsvFile, header: list[str]) -> None:
    if file._header and _form(header) != _form(file._header):
        raise unimportable(
            file.path, f"it mixes two pages of ncu; export each page to its own file, or {HOW}"
        )
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise unimportable(file.path, f"it has the column {twice} twice; export it again")
    if _form(header) != "summary" and "ID" not in header:
        raise unimportable(file.path, f"it has no column ID, which identifies launches; {HOW}")
    file._header, file._units = header, None
    file._tables += 1


def _form(header: list[str]) -> str:
    if "Metric Name" not in header:
        return "raw"
    return "details" if "Metric Value" in header else "summary"


def _row(file: CsvFile, fields: list[str]) -> None:
    row = dict(zip(file._header, (field.strip() for field in fields), strict=True))
    form = _form(file._header)
    if form == "raw":
        _raw_row(file, fields, row)
    elif row["Metric Name"]:
        value = row.get("Metric Value" if form == "details" else "Average", "")
        launch = _launch(file, row)
        file._raw.append((launch, _metric(row), value, row.get("Metric Unit", "")))


def _raw_row(file: CsvFile, fields: list[str], row: dict[str, str]) -> None:
    if not row.get("Kernel Name"):
        file._units = fields
        return
    if file._units is None:
        raise unimportable(file.path, f"it has no row of units; {HOW}")
    launch = _launch(file, row)
    for (name, text), unit in zip(row.items(), file._units, strict=True):
        if _METRIC.fullmatch(name):
            file._raw.append((launch, name, text, unit))


def _launch(file: CsvFile, row: dict[str, str]) -> Launch:
    own = row.get("ID") or f"{row['Kernel Name']} {row.get('Grid Size')} {row.get('Block Size')}"
    key = (file._tables, row.get("Process ID", ""), own)
    if key not in file.launches:
        file.launches[key] = Launch(
            name=row["Kernel Name"],
            pid=_int(row.get("Process ID")),
            host=row.get("Host Name") or None,
            device=_int(row.get("Device")) or 0,
            stream=_int(row.get("Stream")),
            grid=_dims(row.get("Grid Size")),
            block=_dims(row.get("Block Size")),
            count=_int(row.get("Invocations")) or 1,
            texts={"cc": row["CC"]} if row.get("CC") else {},
        )
    return file.launches[key]


def _int(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _dims(text: str | None) -> str | None:
    """Return `(64, 1, 1)` as 64x1x1."""
    return "x".join(re.findall(r"\d+", text or "")) or None


def _metric(row: dict[str, str]) -> str:
    """Return the name of a row's metric; for the details page, the name that belongs to its label."""
    label, section = row["Metric Name"], row.get("Section Name", "")
    if "__" in label:
        return label.rpartition("(")[2].rstrip(")") if "(" in label else label
    return _labels().get(section, {}).get(label) or (f"{section}: {label}" if section else label)


def _convert(file: CsvFile) -> None:
    """Convert texts to values, with the decimal mark that fits all of them."""
    numbers = {text: plain(text) for _, _, text, _ in file._raw}
    try:
        mark = decimal_mark(number for number in numbers.values() if number)
        values = {text: to_float(number, mark) for text, number in numbers.items() if number}
    except TwoNotationsError:
        raise unimportable(
            file.path, "its numbers use both 1,234.5 and 1.234,5; give a file from a single machine"
        ) from None
    except ValueError:
        raise unimportable(file.path, "it has a number that cannot be read; export it again") from None
    for launch, metric, text, unit in file._raw:
        if text in values:
            scale, base = base_unit(unit)
            if metric == DURATION and base != "s":
                raise unimportable(
                    file.path, f"its {DURATION} is in '{unit}', which is not a unit of time; {HOW}"
                )
            launch.values[metric], launch.units[metric] = values[text] * scale, base
        elif is_absent(text):
            launch.absent.add(metric)
        else:
            launch.texts[metric] = text
    file._raw.clear()
