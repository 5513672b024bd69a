"""The inputs of `fathom import`: traces, folders of traces, ncu results, or a raw recording."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fathom.errors import BadInputError
from fathom.probe.frames import FIFO
from fathom.recorder.command import free_output
from fathom.regular import open_regular

if TYPE_CHECKING:
    from fathom.sounding import Store

TRACE_ENDINGS = (
    *(
        ".gz",
        ".json",
        ".jsonl",
        ".trace",
        ".pt",
        ".csv",
        ".ncu-rep",
        ".ncu-repz",
        ".sqlite",
        ".nsys-rep",
        ".qdrep",
        ".db",
    ),
)
_OTHERS = {b"PK\x03\x04": "it is a zip file; a packed sounding needs no import, open it with `fathom report`"}
_JAX_RUNS = "plugins/profile/*"  # a folder per call of jax.profiler.trace
_PATTERNS = ("*.json", "*.json.gz")


def import_any(
    paths: list[Path], output: Path | None = None, *, replace: bool = False, step_range: str | None = None
) -> Store:
    """Import one folder of raw records, traces and folders of traces, or ncu results, as a sounding.

    Without `output`, the sounding replaces raw records, or is named after the first input;
    `replace` overwrites an existing sounding. `step_range` names the ranges of a trace that are its steps.
    Raises BadInputError.
    """
    recordings = [folder for path in paths if (folder := _recording(path))]
    if not recordings:
        return _import_files(paths, output, replace, step_range)
    if step_range:
        raise BadInputError("A recording has its own steps; --step-range is for traces of other tools.")
    if len(paths) > 1:
        raise BadInputError("Raw records cannot be combined with other files; give only one recording.")
    return _import_recording(recordings[0], output, replace)


def _recording(path: Path) -> Path | None:
    """Return the recording's folder if `path` is that folder or its `raw/`; else None."""
    if (path / "raw").is_dir():
        return path
    return path.parent if path.name == "raw" and (path / "launch.json").is_file() else None


def _import_recording(folder: Path, output: Path | None, replace: bool) -> Store:
    from fathom.recorder.folding import fold
    from fathom.sounding import import_raw

    if output is None or os.path.realpath(output) == os.path.realpath(folder):
        _require_ended(folder)
        store = fold(import_raw(folder))
        if (folder / "raw" / "end.json").exists():  # else the program may outlive its killed recorder
            shutil.rmtree(folder / "raw", ignore_errors=True)
        return store
    return fold(import_raw(folder, output, replace=replace))


def _require_ended(folder: Path) -> None:
    """Raise BadInputError if a recorder still reads the named pipe in `folder`."""
    pipe = folder / "raw" / FIFO
    try:
        if not pipe.is_fifo():
            return
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # fails without a reader
    except OSError:
        return
    why = f"{folder} is still being recorded; wait until its program has ended"
    raise BadInputError(f"{why}, or import what it holds so far under another name with -o.")


def _import_files(paths: list[Path], output: Path | None, replace: bool, step_range: str | None) -> Store:
    from fathom.sounding import import_ncu, import_traces, is_ncu

    kinds = {is_ncu(path) for path in paths}
    if len(kinds) > 1:
        raise BadInputError("Results of ncu cannot be combined with traces; give only one kind.")
    name = trace_name(paths[0])
    output = output or (Path(f"{name}.fathom") if replace else free_output(name, Path()))
    if True in kinds:
        return import_ncu(paths, output, name=output.stem, replace=replace)
    return import_traces(_expand(paths), output, name=output.stem, replace=replace, step_range=step_range)


def _expand(paths: list[Path]) -> list[Path]:
    """Replace folders by the traces in them."""
    files: list[Path] = []
    for path in paths:
        traces = _traces_in(path) if path.is_dir() else [path]
        if (path / "manifest.json").is_file():
            raise BadInputError(f"{path} is already a sounding; open it with `fathom report {path}`.")
        if not traces:
            raise BadInputError(f"{path} contains neither traces ({', '.join(_PATTERNS)}) nor raw records.")
        files += traces
    for file in files:
        _refuse_others(file)
    if twice := next(
        (file for file, times in Counter(map(os.path.realpath, files)).items() if times > 1), None
    ):
        raise BadInputError(f"{twice} was given twice; give each rank's trace once.")
    return files


def _traces_in(folder: Path) -> list[Path]:
    """Return the traces in a folder; in a log folder of JAX, those of the last run."""
    runs = sorted(folder.glob(_JAX_RUNS))
    if runs:
        return sorted(runs[-1].glob("*.trace.json.gz"))
    return sorted(file for pattern in _PATTERNS for file in folder.glob(pattern))


def _refuse_others(file: Path) -> None:
    """Raise BadInputError for formats often mistaken for a trace."""
    try:
        with open_regular(file) as opened:
            head = opened.read(16)
    except OSError:
        return
    for start, why in _OTHERS.items():
        if head.startswith(start):
            raise BadInputError(f"{file} cannot be imported: {why}.")


def trace_name(path: Path) -> str:
    """Return the name of a trace's sounding: the file name without its extensions."""
    name = os.path.basename(os.path.realpath(path))  # noqa: PTH119 - Path.resolve raises for a loop of links
    while name.endswith(TRACE_ENDINGS):
        name = name[: name.rindex(".")]
    return name or "trace"
