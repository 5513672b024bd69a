"""Settings files: what `fathom tune` found, and what `fathom run --settings` applies to a program."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from fathom.atomic import atomic_write
from fathom.errors import BadInputError, file_errors
from fathom.machine.model import Machine
from fathom.settings import settings_in

FORMAT = 1
BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys of TOML that need no quotes


@dataclass(frozen=True)
class Applied:
    """Settings of a program: variables of its environment, acts of the probe, arguments of its command.

    `proof` and `machine` describe where they come from; `knobs` has the name of each setting's value,
    `carries` the kind of result (`machine/compare/rules.yaml`) that decides whether it holds elsewhere.
    """

    format: int = FORMAT
    environment: dict[str, str] = field(default_factory=dict)
    acts: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    knobs: dict[str, str] = field(default_factory=dict)
    carries: dict[str, str] = field(default_factory=dict)
    proof: dict[str, object] = field(default_factory=dict)
    machine: str = ""  # the inventory of the machine that they were proven on, as JSON

    def words(self, command: list[str]) -> list[str]:
        """Return the command with these arguments, replaced where it has them."""
        words = list(command)
        for name, value in self.arguments.items():
            words = _with_argument(words, name, value)
        return words

    def inventory(self) -> Machine:
        """Return the machine that they were proven on; empty if none is named. Raises BadInputError."""
        try:
            machine = json.loads(self.machine or "{}")
        except (ValueError, RecursionError):
            machine = None
        if not isinstance(machine, dict):
            raise BadInputError(
                "The machine in the settings file is damaged; take the file from `fathom tune`."
            )
        return cast(Machine, machine)

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with these variables."""
        return {**environment, **self.environment}


def _with_argument(words: list[str], name: str, value: str) -> list[str]:
    """Return `words` with the argument `name` set to `value`, in the form that it has there."""
    if name in words[:-1]:
        place = words.index(name)
        return [*words[: place + 1], value, *words[place + 2 :]]
    joined = next((place for place, word in enumerate(words) if word.startswith(f"{name}=")), None)
    if joined is not None:
        return [*words[:joined], f"{name}={value}", *words[joined + 1 :]]
    return [*words, name, value]


def read_settings(path: Path) -> Applied:
    """Read a settings file. Raises BadInputError if it cannot be used."""
    content = settings_in(path)
    if content is None:
        raise BadInputError(f"{path} does not exist; give a settings file that `fathom tune` wrote.")
    import msgspec  # a machine that only records may lack it

    try:
        if unknown := content.keys() - {known.name for known in fields(Applied)}:
            raise msgspec.ValidationError(f"it has the unknown table or key `{min(unknown)}`")
        applied = msgspec.convert(content, Applied)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path} is not a settings file of `fathom tune`: {error}.") from None
    if applied.format != FORMAT:
        raise BadInputError(f"{path} has format {applied.format}; this version of Fathom reads {FORMAT}.")
    from fathom.probe.knobs import ACTS

    if unknown := applied.acts.keys() - ACTS.keys():
        raise BadInputError(
            f"{path} has an unknown act, '{min(unknown)}'; the acts are {', '.join(sorted(ACTS))}."
        )
    return applied


def write_settings(applied: Applied, path: Path, header: str = "") -> None:
    """Write a settings file. Raises BadInputError if that fails."""
    tables = {name: value for name, value in asdict(applied).items() if value}
    plain = {name: value for name, value in tables.items() if not isinstance(value, dict)}
    lines = [*(f"# {line}" for line in header.splitlines()), *(_line(k, v) for k, v in plain.items())]
    for name, table in tables.items():
        if isinstance(table, dict) and table:
            lines += ["", f"[{name}]", *(_line(key, value) for key, value in table.items())]
    with file_errors(path, "written"), atomic_write(path) as part:
        Path(part).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(key: str, value: Any) -> str:
    return f"{_key(key)} = {_toml(value)}"


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else json.dumps(key)


def _toml(value: Any) -> str:
    """Return a value in TOML, whose strings, numbers and lists are written as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
