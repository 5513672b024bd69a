"""Answers of tools: a few facts and as many rows as fit; the rest waits behind a handle."""

from __future__ import annotations

import inspect
import json
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, cast

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from fathom.errors import BadInputError, FathomError, foreseen
from fathom.report.digest import Digest
from fathom.visible import visible

TOKENS = 2000
# About a token each, or less, in the vocabularies of several models; MARGIN is for the rarest text.
_PIECES = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,2}|[^A-Za-z0-9\s]{1,2}|\s+")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
MARGIN = 1.1
KEPT = 32  # handles
DIGITS = 4
CUTS = (2000, 600, 200, 60)  # characters to which long texts are cut, if one row or the facts do not fit
UNITS = {
    "bytes_per_s": "B/s", "flops_per_s": "FLOP/s", "samples_per_s": "samples/s", "tokens_per_s": "tokens/s",
    "percent": "%", "bytes": "B", "ns": "ns", "us": "µs", "ms": "ms", "mhz": "MHz",
    "j": "J", "w": "W", "s": "s",
}  # fmt: skip


class Answer(BaseModel):
    """Facts by name, and rows. Names end in their unit, as in `gain_ms` and `share_percent`."""

    facts: dict[str, Any]
    units: dict[str, str] = {}
    columns: list[str] = Field(default=[], description="Names of the values in a row that is a list.")
    rows: list[Any] = []
    rows_left: int = 0
    more: str | None = Field(default=None, description="Handle of the rows left, for the tool `more`.")


Result = Annotated[CallToolResult, Answer]


@dataclass
class Pages:
    """Divides digests into answers of at most `tokens`, and keeps what is left."""

    tokens: int = TOKENS

    def __post_init__(self) -> None:
        self._left: OrderedDict[str, Digest] = OrderedDict()

    def first(self, digest: Digest) -> Answer:
        """Return the facts and the first rows."""
        return self._fill(Digest(_plain(digest.facts), [_plain(row) for row in digest.rows], digest.columns))

    def next(self, handle: str) -> Answer:
        """Return the next rows of an answer. Raises BadInputError for an unknown handle."""
        if handle not in self._left:
            raise BadInputError(
                f"The handle {handle[:40]!r} is unknown or too old; ask the first tool again."
            )
        return self._fill(self._left[handle])

    def _fill(self, digest: Digest) -> Answer:
        room = float(self.tokens)
        facts = next((cut for cut in _cuts(digest.facts) if _size(cut) < 0.7 * room), None)
        if facts is None:
            raise BadInputError("The answer does not fit; ask for less, such as fewer columns.")
        answer = Answer(facts=facts, columns=digest.columns, units=_units(facts, digest))
        room -= _size(answer.model_dump()) + 30  # the handle and the number of rows left
        for row in digest.rows:
            if answer.rows and _size(row) >= room:
                break
            fitting = next((cut for cut in _cuts(row) if _size(cut) < room), None)
            if fitting is None:
                raise BadInputError("A row is too wide for an answer; select fewer columns.")
            answer.rows.append(fitting)
            room -= _size(fitting) + 1
        return self._with_handle(answer, digest)

    def _with_handle(self, answer: Answer, digest: Digest) -> Answer:
        left = digest.rows[len(answer.rows) :]
        if left:
            answer.rows_left, answer.more = len(left), secrets.token_hex(4)
            self._left[answer.more] = Digest({}, left, digest.columns)
            while len(self._left) > KEPT:
                self._left.popitem(last=False)
        return answer


def answering(tool: Callable[..., Any], pages: Pages) -> Callable[..., Any]:
    """Return the tool with its digest as an answer, and errors that the caller can act on as messages."""

    @wraps(tool)
    async def asynchronous(*args: Any, **kwargs: Any) -> CallToolResult:
        with tool_errors():
            return packed(pages.first(await tool(*args, **kwargs)))

    @wraps(tool)
    def synchronous(*args: Any, **kwargs: Any) -> CallToolResult:
        with tool_errors():
            return packed(pages.first(tool(*args, **kwargs)))

    chosen: Any = asynchronous if inspect.iscoroutinefunction(tool) else synchronous
    chosen.__signature__ = inspect.signature(tool, eval_str=True).replace(return_annotation=Result)
    return cast(Callable[..., Any], chosen)


def packed(answer: Answer) -> CallToolResult:
    """Return the answer as structured content, and as text for clients that read only that."""
    content = answer.model_dump(exclude_defaults=True)
    text = TextContent(type="text", text=text_of(answer))
    return CallToolResult(content=[text], structured_content=content)


def text_of(answer: Answer) -> str:
    """Return the answer as compact JSON."""
    return _json(answer.model_dump(exclude_defaults=True))


@contextmanager
def tool_errors() -> Iterator[None]:
    """Context manager that turns errors of the input into messages for the caller."""
    try:
        yield
    except FathomError as error:
        raise ToolError(visible(str(error))) from None
    except Exception as error:
        if (sentence := foreseen(error)) is None:
            raise
        raise ToolError(visible(sentence)) from None


def _plain(value: Any) -> Any:
    """Return the value as JSON holds it, with rounded numbers and without control characters."""
    if isinstance(value, dict):
        return {visible(str(key)): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return _rounded(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return visible(str(value))


def _rounded(value: float) -> float | int:
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _cuts(value: Any) -> Iterator[Any]:
    """Yield the value, then with ever shorter texts; a row that is a list keeps all its columns."""
    yield value
    for most in CUTS:
        yield [_cut(part, most) for part in value] if isinstance(value, list) else _cut(value, most)


def _cut(value: Any, most: int) -> Any:
    """Return the value with long texts cut to `most` characters, and long lists to as many as fit that."""
    if isinstance(value, dict):
        return {key: _cut(part, most) for key, part in value.items()}
    if isinstance(value, list):
        kept = value[: max(most // 20, 3)]
        rest = [f"… {len(value) - len(kept)} more"] if len(kept) < len(value) else []
        return [_cut(part, most) for part in kept] + rest
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]} … ({len(value):,} characters)"
    return value


def _units(facts: dict[str, Any], digest: Digest) -> dict[str, str]:
    names = [
        *facts,
        *digest.columns,
        *(key for row in digest.rows[:1] if isinstance(row, dict) for key in row),
    ]
    return {name: unit for name in names if (unit := _unit(name))}


def _unit(name: str) -> str | None:
    return next(
        (unit for suffix, unit in UNITS.items() if name.endswith(f"_{suffix}") or name == suffix), None
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _size(value: Any) -> float:
    """Return an estimate of the value's tokens as JSON, which is rarely too low."""
    text = _json(value)
    return MARGIN * (len(_PIECES.findall(text)) + len(_FOREIGN.findall(text)))
