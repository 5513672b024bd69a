"""The dialogue with the parent: JSON lines over two separate pipes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import IO, Any

from fathom.errors import FathomError
from fathom.referee.child.side import Side
from fathom.referee.protocol import Failure, Spec

PR_SET_PDEATHSIG = 1
_ASKED = ("about", "place", "go", "hold", "fingerprint", "save", "work")


def serve(spec: Spec, ask: IO[str], answer: IO[str]) -> None:
    """Set up the side, then serve requests until the parent closes its pipe.

    Answers are `{"ok": …}`, or `{"error": …}` with a `Failure`.
    """
    side: Side | None = None

    def reply(content: dict[str, object]) -> None:
        answer.write(json.dumps(content) + "\n")
        answer.flush()

    try:
        side = Side(spec)
        reply({"ok": side.key})
    except BaseException as error:
        reply({"error": describe_error(error)})
        return
    for line in ask:
        request = json.loads(line)
        try:
            reply({"ok": _do(side, request.pop("do"), request)})
        except BaseException as error:  # including SystemExit: a candidate must not end the process
            reply({"error": describe_error(error)})


def end_with_parent() -> None:
    """Have the kernel kill this process with its parent, since a stopped process would not see EOF."""
    with suppress(AttributeError):  # only Linux has this call
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _do(side: Side, what: str, request: dict[str, Any]) -> Any:
    if what in ("changed", "inspect"):  # pairs of (reason, detail)
        from fathom.referee.child import examination

        look = examination.left_changed if what == "changed" else examination.examine
        return [list(pair) for pair in look(side, **request)]
    return getattr(side, what if what in _ASKED else "unknown")(**request)


def describe_error(error: BaseException) -> Failure:
    """Return the type, text and place of an error, for the parent."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    text = (str(error).strip().splitlines() or [""])[0][:300]
    return {
        "type": type(error).__name__,
        "text": text,
        "where": where,
        "bad_input": isinstance(error, FathomError),
    }


def main() -> None:
    """Run `python -m fathom.referee.child SPEC IN OUT`, where IN and OUT are file descriptors of pipes."""
    end_with_parent()
    spec, reading, writing = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    del sys.argv[1:]
    with os.fdopen(reading) as ask, os.fdopen(writing, "w") as answer:
        serve(spec, ask, answer)
