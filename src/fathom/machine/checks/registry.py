"""Register readers by name and run them so that none of them raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from fathom.machine.checks.host import Host
from fathom.machine.checks.model import Check, Observation, abstained, unfit
from fathom.machine.files import NotOfferedError, UnreadableError

Answer = Observation | Iterable[Observation]
Reader = Callable[[Host, Check], Answer]
READERS: dict[str, Reader] = {}


def reader(*names: str) -> Callable[[Reader], Reader]:
    """Register a function as the reader of these checks, or under names that rows give as `reader`."""

    def register(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(names, function))
        return function

    return register


Look = TypeVar("Look", bound=Callable[..., Observation])


def subject_reader(
    each: Callable[[Host, Look], Iterable[Observation]],
) -> Callable[[str], Callable[[Look], Look]]:
    """Return a decorator like `reader` for functions of one subject; `each` calls them for all of a host."""

    def named(name: str) -> Callable[[Look], Look]:
        def register(look: Look) -> Look:
            reader(name)(lambda host, _: each(host, look))
            return look

        return register

    return named


def read(host: Host, check: Check) -> list[Observation]:
    """Run the check's reader; any error in it becomes an abstention."""
    try:
        answer = READERS[check.reader or check.id](host, check)
        return [answer] if isinstance(answer, Observation) else [*answer]
    except UnreadableError as error:
        return [abstained(str(error))]
    except NotOfferedError as error:
        return [unfit(str(error))]
    except Exception as error:  # an unexpected host must not hide the other checks
        return [abstained(f"reading failed ({type(error).__name__}: {error})")]
