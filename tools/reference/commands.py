"""The reference of commands: usage, arguments, options and examples, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from fathom.cli.main import app
from reference.markdown import block, code, table, text

INTRODUCTION = """# Commands

`fathom COMMAND --help` prints the same. Reports are as wide as the terminal, 100 columns if piped;
`NO_COLOR` and `--json` are honoured where listed. `FATHOM_DEBUG=1` shows the traceback of an error.

"""


def pages() -> dict[str, str]:
    """One page with every command."""
    listed = commands()
    index = table(("command", "purpose"), (_row(name, command) for name, command in listed))
    return {"reference/commands.md": INTRODUCTION + index + "".join(_section(*pair) for pair in listed)}


@cache
def commands() -> list[tuple[str, Any]]:
    """Every command by its full name, in the order of `fathom --help`."""
    return list(_below("fathom", typer.main.get_command(app)))


def _below(name: str, group: Any) -> Iterator[tuple[str, Any]]:
    for part, command in group.commands.items():
        if hasattr(command, "commands"):
            if command.callback:  # `fathom machine` is a command, and a group of others
                yield f"{name} {part}", command
            yield from _below(f"{name} {part}", command)
        else:
            yield f"{name} {part}", command


def anchor(name: str) -> str:
    """The anchor of a command's section."""
    return name.replace(" ", "-")


def _row(name: str, command: Any) -> tuple[str, str]:
    return f"[`{name}`](#{anchor(name)})", text(_paragraphs(command)[0])


def _paragraphs(command: Any) -> list[str]:
    return [part for part in (command.help or "").strip().split("\n\n") if part]


def _section(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    parts = [f"\n## `{name}` {{#{anchor(name)}}}\n"]
    parts += [text(paragraph) + "\n" for paragraph in _paragraphs(command)]
    parts.append(block("text", " ".join(command.get_usage(context).removeprefix("Usage: ").split())))
    rows = [_option(record) for p in command.params if (record := p.get_help_record(context))]
    if rows:
        parts.append(table(("option", "meaning"), rows))
    if examples := _examples(command):
        parts.append(block("sh", examples))
    return "\n".join(parts)


def _option(record: tuple[str, str]) -> tuple[str, str]:
    names, meaning = record
    return code(names), text(meaning)


def _examples(command: Any) -> str:
    lines = (command.epilog or "").replace("Examples:", "").replace("Example:", "").splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())
