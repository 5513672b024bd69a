"""The model of a check and its result."""

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
# Fields of a check that its result has too.
COPIED = ("id", "group", "title", "problem", "why", "fix", "needs", "costs", "source", "weight")
_BLANK = re.compile(r"\{([a-z]+)\}")


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"using": "with"}):
    """One row of the tables in `rows/`: what is checked, why it matters, and how to fix it.

    `reader` names the reader function (by default the row's id), `using` holds its parameters. `commands`
    are POSIX shell lines; the reader's values replace `{name}` in them, and `<NAME>` in a comment marks
    a value that only a person knows. `needs` lists what a command needs to take effect: root, a reboot,
    a person's decision, or the shell that runs the program (for an environment variable). `reads` names the
    files, variables or calls, `applies` the hosts. `costs` is what a failure costs, with its source; `source`
    explains the setting. `weight`, up to 1000, orders the checks, the costliest first: a new one goes between
    rows that cost more and rows that cost less. `tips` are those that a failure breaks (`fathom.tips`).
    `tables.py` has the fields that all rows of a table or of a reader share, which a row may leave out.
    """

    id: str
    title: str  # the title of a pass
    problem: str  # the title of a failure
    reads: str
    applies: str
    why: str
    fix: str
    costs: str
    source: str
    weight: int
    tips: list[str]
    commands: list[str] = []
    needs: list[Need] = []
    reader: str = ""
    using: dict[str, Any] = {}

    @property
    def group(self) -> str:
        """The table that holds the row: kernel, gpu, libraries, container or kubernetes."""
        return self.id.partition(".")[0]


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One reader's answer for one subject: a GPU, a container of a manifest, or the host (no name).

    `observed` is the value in words, or the reason why it could not be read or does not apply.
    `fill` supplies values for the commands of the fix.
    """

    status: Status
    observed: str
    subject: str = ""
    fill: dict[str, str] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check; the values of `--json`."""

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


def passed(observed: str, **more: Any) -> Observation:
    return Observation(status="pass", observed=observed, **more)


def failed(observed: str, subject: str = "", **fill: str) -> Observation:
    return Observation(status="fail", observed=observed, subject=subject, fill=fill)


def judged(good: bool, observed: str, subject: str = "", **fill: str) -> Observation:
    """Pass or fail, by one observation."""
    return Observation(status="pass" if good else "fail", observed=observed, subject=subject, fill=fill)


def unfit(reason: str) -> Observation:
    """The check does not apply here."""
    return Observation(status="not_applicable", observed=reason)


def abstained(reason: str, subject: str = "") -> Observation:
    return Observation(status="abstained", observed=reason, subject=subject)


def conclude(check: Check, findings: Iterable[Observation]) -> Result:
    """Combine all subjects into one result: the gravest status, in the words of its subjects."""
    answers = [*findings] or [unfit("there is nothing to check")]
    status = min((f.status for f in answers), key=GRAVITY.__getitem__)
    decisive = [f for f in answers if f.status == status]
    words = _words(decisive)
    return Result(
        **{name: getattr(check, name) for name in COPIED},
        status=status,
        observed=words if status in ("pass", "fail") else "",
        reason=None if status in ("pass", "fail") else words,
        commands=[*dict.fromkeys(line for c in check.commands for line in _fillings(c, decisive))],
        subjects=[_subject(f) for f in answers if f.subject],
    )


def _words(findings: list[Observation]) -> str:
    """Join the observations; subjects with the same one share a phrase."""
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


def _fillings(command: str, findings: list[Observation]) -> list[str]:
    """Fill a command once per distinct set of values; drop it if its placeholders have no value.

    Comments that differ between subjects name their subjects.
    """
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


def _subject(finding: Observation) -> dict[str, str]:
    return {"subject": plain(finding.subject), "status": finding.status, "observed": plain(finding.observed)}


def plain(text: str) -> str:
    """Return `text` as one line of limited length, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def as_json(results: Iterable[Result]) -> Mapping[str, dict[str, Any]]:
    """Return the contract of `--json`: one object per check, keyed by id."""
    return {result.id: msgspec.to_builtins(result) for result in results}
