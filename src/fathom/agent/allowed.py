"""The programs that the server may run: patterns of commands, compared argument by argument.

A pattern is written as a command. Each of its words matches one argument: `*` is any text without `/`, and
`?` one of its characters. A last word that is only `*` matches all further arguments. No shell is involved.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from fathom.errors import BadInputError

ANY = "*"
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_SHELL = re.compile(r"[;&|<>`]|\$[({A-Za-z_]")  # text that only a shell would act on


class Allowed:
    """Patterns of commands. Raises BadInputError for one that would allow any program."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self.patterns = [pattern.strip() for pattern in patterns]
        self._words = [_pattern(pattern) for pattern in self.patterns]

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def command(self, text: str) -> list[str]:
        """Return the words of an allowed command. Raises BadInputError for any other."""
        words = _split(text)
        strange = next((word for word in words if _SHELL.search(word)), None)
        exact = any(words == pattern for pattern in self._words)
        if strange is not None and not exact:
            raise BadInputError(f"{strange!r} in {text!r} is shell syntax; commands run without a shell.")
        if not any(_matches(pattern, words) for pattern in self._words):
            raise BadInputError(self._refused(text))
        return words

    def address(self, text: str) -> str:
        """Return an allowed function, like `norm.py:fused`. Raises BadInputError for any other."""
        if not any(_matches(pattern, [text]) for pattern in self._words):
            raise BadInputError(self._refused(text))
        return text

    def _refused(self, text: str) -> str:
        listed = ", ".join(map(repr, self.patterns))
        return (
            f"{text!r} is not allowed to run; this server allows {listed}. Each word of a pattern matches one"
            " argument, and a last word * all further ones."
        )


def _pattern(text: str) -> list[str]:
    words = _split(text)
    if words[0][0] in "*?":
        raise BadInputError(f"The pattern {text!r} would allow any program; begin it with a program's name.")
    return words


def _split(text: str) -> list[str]:
    if _CONTROL.search(text):
        raise BadInputError(f"The command {text!r} contains a line end or control character; remove it.")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInputError(f"The command {text!r} cannot be read: {error}.") from None
    if not words or not words[0]:
        raise BadInputError("The command is empty; give a program and its arguments.")
    return words


def _matches(pattern: list[str], words: list[str]) -> bool:
    if pattern[-1] == ANY and len(pattern) > 1:
        pattern, rest = pattern[:-1], words[len(pattern) - 1 :]
        words = words[: len(pattern)]
        if len(pattern) == 1 and rest and rest[0].startswith("-"):  # `python *` is about scripts, not `-c`
            return False
    return len(pattern) == len(words) and all(map(_fits, pattern, words))


def _fits(pattern: str, word: str) -> bool:
    """Return whether the argument matches. A wildcard never begins an option, as `*.py` would `-c….py`."""
    if pattern[:1] in ("*", "?") and word.startswith("-"):
        return False
    parts = (re.escape(part) if part not in ("*", "?") else {"*": "[^/]*", "?": "[^/]"}[part]
             for part in re.split(r"([*?])", pattern))  # fmt: skip
    return re.fullmatch("".join(parts), word) is not None
