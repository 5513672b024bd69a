"""What a check is, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

Status = Literal["pass", "fail", "not_applicable", "abstained"]
Need = Literal["root", "reboot", "decision", "shell"]

GRAVITY: dict[Status, int] = {"fail": 0, "abstained": 1, "pass": 2, "not_applicable": 3}
MOST_NAMED = 8
LONGEST = 400
_BLANK = re.compile(r"\{([a-z]+)\}")


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"using": "with"}):
    """One row of the tables in `rows/`: what is looked at, why it matters, and how it is mended.

    `reader` names the function that looks (the row's own id by default), `using` its parameters. `commands`
    are POSIX shell lines; `{name}` in them is filled with what the reader found, and `<NAME>` in a comment
    is what only a person can know. `needs` says what stands between a command and its effect: root, a reboot,
    a decision of a person, or the shell that runs the program (an environment variable). `weight` orders the
    checks, the costliest first.
    """

    id: str
    title: str  # what holds where it passes
    problem: str  # what holds where it fails
    reads: str
    applies: str
    why: str
    fix: str
    costs: str
    source: str
    weight: int
    commands: list[str] = []
    needs: list[Need] = []
    reader: str = ""
    using: dict[str, Any] = {}

    @property
    def group(self) -> str:
        """The table that the row stands in: kernel, gpu, libraries, container or kubernetes."""
        return self.id.partition(".")[0]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader saw on one subject: a GPU, a container of a manifest, or the host (no name).

    `observed` is the value in words, or the reason why it could not be looked at or does not apply.
    `fill` completes the commands of the fix.
    """

    status: Status
    observed: str
    subject: str = ""
    fill: dict[str, str] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A check and what came of it; the values of `--json`."""

    id: str
    group: str
    title: str
    status: Status
    observed: str
    reason: str | None
    why: str
    fix: str
    commands: list[str]
    needs: list[Need]
    costs: str
    source: str
    weight: int
    subjects: list[dict[str, str]]
    problem: str = ""  # the title of a failure


def passed(observed: str, **more: Any) -> Finding:
    return Finding(status="pass", observed=observed, **more)


def failed(observed: str, subject: str = "", **fill: str) -> Finding:
    return Finding(status="fail", observed=observed, subject=subject, fill=fill)


def judged(good: bool, observed: str, subject: str = "", **fill: str) -> Finding:
    """Pass or fail of one observation."""
    return Finding(status="pass" if good else "fail", observed=observed, subject=subject, fill=fill)


def unfit(reason: str, subject: str = "") -> Finding:
    """The check does not apply here."""
    return Finding(status="not_applicable", observed=reason, subject=subject)


def abstained(reason: str, subject: str = "") -> Finding:
    return Finding(status="abstained", observed=reason, subject=subject)


def conclude(check: Check, findings: Iterable[Finding]) -> Result:
    """One result of all subjects: the gravest status, in the words of the subjects that have it."""
    found = [*findings] or [unfit("there is nothing to look at")]
    status = min((f.status for f in found), key=GRAVITY.__getitem__)
    decisive = [f for f in found if f.status == status]
    words = _words(decisive)
    return Result(
        id=check.id,
        group=check.group,
        title=check.title,
        status=status,
        observed=words if status in ("pass", "fail") else "",
        reason=None if status in ("pass", "fail") else words,
        why=check.why,
        fix=check.fix,
        commands=_filled(check.commands, decisive),
        needs=check.needs,
        costs=check.costs,
        source=check.source,
        weight=check.weight,
        subjects=[_subject(f) for f in found if f.subject],
        problem=check.problem,
    )


def _words(findings: list[Finding]) -> str:
    """Subjects that say the same share a phrase."""
    said: dict[str, list[str]] = {}
    for finding in findings:
        said.setdefault(plain(finding.observed), []).append(finding.subject)
    phrases = [": ".join(filter(None, (_named(names), observed))) for observed, names in said.items()]
    more = len(phrases) - MOST_NAMED
    return "; ".join(phrases[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _named(names: list[str]) -> str:
    named = [plain(name) for name in names if name]
    more = len(named) - MOST_NAMED
    return ", ".join(named[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _filled(commands: list[str], findings: list[Finding]) -> list[str]:
    """Each command once for each distinct filling; a command whose blanks nobody filled is left out."""
    return [*dict.fromkeys(line for command in commands for line in _fillings(command, findings))]


def _fillings(command: str, findings: list[Finding]) -> list[str]:
    """A comment that differs from subject to subject says whose it is."""
    said: dict[str, list[str]] = {}
    for finding in findings:
        filled = _fill(command, finding.fill)
        if filled:
            said.setdefault(filled, []).append(finding.subject)
    whose = command.startswith("#") and len(said) > 1
    return [f"{line}  # {_named(names)}" if whose and any(names) else line for line, names in said.items()]


def _fill(command: str, fill: Mapping[str, str]) -> str | None:
    if not {*_BLANK.findall(command)} <= {*fill}:
        return None
    return _BLANK.sub(lambda blank: plain(fill[blank.group(1)]), command)


def _subject(finding: Finding) -> dict[str, str]:
    return {
        "subject": plain(finding.subject),
        "status": finding.status,
        "observed": plain(finding.observed),
    }


def plain(text: str) -> str:
    """`text` on one line, without what a terminal or a shell could take for a command, and not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def as_json(results: Iterable[Result]) -> Mapping[str, dict[str, Any]]:
    """The contract of `--json`: one object a check, under its id."""
    return {result.id: msgspec.to_builtins(result) for result in results}
