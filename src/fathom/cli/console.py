"""Shared by the commands: options, JSON, and messages on standard error, which do not mix with results."""

from __future__ import annotations

import inspect
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from fathom.errors import BadInputError, first_line, foreseen
from fathom.redaction import redact_text
from fathom.visible import escaped, visible_line


def say(text: str) -> None:
    """Print the line `fathom: text` on standard error, if that is open."""
    if sys.stderr is None:  # print would write to standard output instead
        return
    with suppress(OSError):
        print(f"fathom: {visible_line(text)}", file=sys.stderr, flush=True)


def print_json(content: Any) -> None:
    """Print dicts, lists and structs as indented JSON."""
    import json

    import msgspec

    print(json.dumps(msgspec.to_builtins(content), indent=1))


def write_json(content: Any) -> None:
    """Write dicts, lists and structs as JSON on one line, which is faster than `print_json`."""
    import msgspec

    encoded = msgspec.json.encode(content)
    sys.stdout.buffer.write((encoded if encoded.isascii() else escaped(encoded.decode()).encode()) + b"\n")


def explain(error: Exception) -> str:
    """Return one sentence for an unexpected error, and write its traceback to a file."""
    if (sentence := foreseen(error)) is not None:
        return sentence
    return f"unexpected {type(error).__name__}: {first_line(error)}{_keep_details(error)}"


def _keep_details(error: Exception) -> str:
    try:
        with tempfile.NamedTemporaryFile("w", prefix="fathom-error-", suffix=".txt", delete=False) as file:
            file.write(redact_text("".join(traceback.format_exception(error))))
    except OSError:
        return ""
    return f"; the details are in {file.name}"


SoundingPath = Annotated[Path, typer.Argument(help="A sounding, packed or not.")]
PATTERN = "The family's name, a part of it, a pattern with * and ?, or a regular expression."
StepKind = Annotated[
    str | None, typer.Option("--kind", help="Kind of step: prefill, decode, or its number in a report.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite the sounding if it exists.")]
Machine = Annotated[
    Path | None, typer.Option(help="A machine file, whose ceilings replace the recorded ones.")
]
Price = Annotated[
    str | None,
    typer.Option(help="Price of a GPU, like 3.50/h or 3.50 EUR/h; else `price` under [cost] in fathom.toml."),
]

On = Annotated[
    str, typer.Option("--on", metavar="ray", help="Divide the ranks of a large job among a Ray cluster.")
]


_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str = "--budget") -> float:
    """Parse a duration such as 90s, 10m or 1h. Raises BadInputError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise BadInputError(f"{option} takes a time such as 90s, 10m or 1h, not '{text}'.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def page_path(path: Path) -> Path:
    """Return the path of a page. Raises BadInputError unless it ends in `.html`."""
    if path.suffix != ".html":
        raise BadInputError(f"{path} does not end in .html; give a file name that does.")
    return path


def examples(*commands: str) -> str:
    """The text below a command's options, with a paragraph for each example."""
    return "\n\n".join(["Examples:", *commands])


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are dataclasses of options are given field by field."""
    own, hints = inspect.signature(command).parameters, get_type_hints(command, include_extras=True)
    groups = {name: hints[name] for name in own if is_dataclass(hints[name])}
    options = [own[name].replace(annotation=hints[name]) for name in own if name not in groups]
    for kind in groups.values():
        types = get_type_hints(kind, include_extras=True)
        options += [
            inspect.Parameter(f.name, _KEYWORD, default=f.default, annotation=types[f.name])
            for f in fields(kind)
        ]

    @wraps(command)
    def flat(**given: Any) -> None:
        filled = {
            name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **filled)

    flat.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    flat.__annotations__ = {option.name: option.annotation for option in options}
    return flat


def group(add_completion: bool = False, **options: Any) -> typer.Typer:
    return typer.Typer(
        add_completion=add_completion,
        rich_markup_mode=None,  # its libraries take longer to import than all of Fathom
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )
