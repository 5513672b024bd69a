"""Readers by name, and the promise that none of them raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fathom.machine.checks.host import Host, NotOfferedError, UnreadableError
from fathom.machine.checks.model import Check, Finding, abstained, unfit

Answer = Finding | Iterable[Finding]
Reader = Callable[[Host, Check], Answer]
READERS: dict[str, Reader] = {}


def reader(*names: str) -> Callable[[Reader], Reader]:
    """Register a function as the reader of these checks, or under names that rows give as `reader`."""

    def register(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(names, function))
        return function

    return register


def read(host: Host, check: Check) -> list[Finding]:
    """What the check's reader finds; whatever goes wrong in it becomes an abstention."""
    try:
        answer = READERS[check.reader or check.id](host, check)
        return [answer] if isinstance(answer, Finding) else [*answer]
    except UnreadableError as error:
        return [abstained(str(error))]
    except NotOfferedError as error:
        return [unfit(str(error))]
    except Exception as error:  # a host that nobody foresaw must not hide the other checks
        return [abstained(f"unforeseen {type(error).__name__} while reading: {error}")]
