"""The fixes of failed checks as a POSIX shell script, meant to be read before running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fathom.machine.checks.model import Need, Result

HEAD = """#!/bin/sh
# Fixes for the failed checks of `fathom machine check`. Nothing has been run; read the script first.
# Lines that need a decision or a reboot are commented out: uncomment those you want.
# Variables and limits take effect only in the shell that sources this file: . ./fix.sh
"""
NEEDS: dict[Need, str] = {
    "root": "root",
    "reboot": "a reboot, or reloading the driver",
    "decision": "your decision",
    "shell": "the shell that starts the program",
}


def fix_script(results: Iterable[Result]) -> str:
    """Return the script, the costliest check first. It parses with `sh -n` whatever was observed."""
    paragraphs = ["\n".join(_lines(result)) for result in results if result.status == "fail"]
    return "\n\n".join([HEAD.rstrip(), *(paragraphs or ["# No check failed."])]) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield f"# {result.id}: {result.problem or result.title}"
    yield f"#   found: {result.observed}"
    yield f"#   fix: {result.fix}"
    if result.needs:
        yield f"#   needs: {', '.join(NEEDS[need] for need in result.needs)}"
    commented = {"decision", "reboot"} & {*result.needs}
    for command in result.commands:
        yield command if command.startswith("#") or not commented else f"# {command}"
