"""The fixes of failed checks as a POSIX shell script, to be read before it is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fathom.machine.checks.model import Result

HEAD = """#!/bin/sh
# Fixes for the failed checks of `fathom machine check`. Nothing of it was run; read it first.
# Lines that need a decision or a reboot are comments: take the sign away where they fit.
# Variables and limits hold in the shell that reads this file: . ./fix.sh
"""


def fix_script(results: Iterable[Result]) -> str:
    """The script, the costliest check first. It parses with `sh -n`, whatever was observed."""
    paragraphs = ["\n".join(_lines(result)) for result in results if result.status == "fail"]
    return "\n\n".join([HEAD.rstrip(), *(paragraphs or ["# No check failed."])]) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield f"# {result.id}: {result.problem or result.title}"
    yield f"#   found: {result.observed}"
    yield f"#   fix: {result.fix}"
    if result.needs:
        yield f"#   needs: {', '.join(map(_need, result.needs))}"
    held = {"decision", "reboot"} & {*result.needs}
    for command in result.commands:
        yield command if command.startswith("#") or not held else f"# {command}"


def _need(need: str) -> str:
    return {
        "root": "root",
        "reboot": "a reboot or a reload of the driver",
        "decision": "your decision",
        "shell": "the shell that starts the program",
    }[need]
