"""A process that runs commands of the fuzzer one after the other: JSON lines in, JSON lines out."""

from __future__ import annotations

import json
import os
import re
import resource
import tempfile
import traceback
import unicodedata
from pathlib import Path
from typing import Any

from tests.fuzz.arguments import TOOL

os.environ["FATHOM_NO_CACHE"] = "1"
_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB", re.MULTILINE)


def main() -> None:
    """Run each command of standard input in an empty folder, and answer on the original standard output."""
    most = resource.getrlimit(resource.RLIMIT_AS)[1]  # a command does not inherit the round's limit
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    answers, orders = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    folder = Path(tempfile.mkdtemp(prefix="fathom-fuzz-"), "a", "b")  # where ../../x is in it too
    folder.mkdir(parents=True)
    os.chdir(folder)
    for line in orders:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


def run(words: list[str]) -> dict[str, Any]:
    """Run one command in this process; `wrong` says what no command may do, None if it did nothing of it."""
    status, wrong = _tool(*words[1:]) if words[0] == TOOL else _command(words)
    return {"status": status, "peak_gib": _peak_gib(), "wrong": wrong}


def _command(words: list[str]) -> tuple[int, str | None]:
    from typer.testing import CliRunner

    from fathom.cli.main import app

    done = CliRunner().invoke(app, words)
    return done.exit_code, _wrong(done, words)


def _tool(name: str, arguments: str, root: str) -> tuple[int, str | None]:
    """Call a tool of the server for agents, which may read one folder."""
    import anyio
    from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
    from pydantic import ValidationError

    from fathom.agent import Allowed, Roots, make_server

    server = make_server(Roots([Path(root)]), Allowed())
    try:
        answer: Any = anyio.run(server.call_tool, name, json.loads(arguments))
    except UnexpectedToolError as error:
        return 1, _unforeseen(error.__cause__ or error)
    except ToolError as error:  # the SDK quotes arguments that do not fit, which the caller chose
        return 1, None if isinstance(error.__cause__, ValidationError) else _strange(str(error))
    return 0, _strange(answer.content[0].text)


def _peak_gib() -> float:
    """Return the largest resident memory of this process or its children, without that of its parent."""
    own = _PEAK.search(Path("/proc/self/status").read_text())
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(int(own[1]) if own else 0, children) / 2**20


def _wrong(done: Any, words: list[str]) -> str | None:
    from fathom.cli.console import explain

    error = done.exception
    if error is not None and not isinstance(error, SystemExit) and "unexpected" in explain(error):
        return _unforeseen(error)
    if error is not None and not isinstance(error, SystemExit):
        return None  # main() prints one sentence
    lines = done.stderr.count("\n")
    judges = words[0] in ("gate", "what-if") or words[:2] == ["machine", "check"]
    # A budget is exceeded, nothing could be predicted, or a check failed.
    judged = judges and done.exit_code == 1 and not lines
    usage = done.exit_code == 2 and done.stderr.startswith("Usage:")  # the command line itself is wrong
    if done.exit_code and lines != 1 and not judged and not usage:
        return f"{lines} lines on standard error: {done.stderr[:200]!r}"
    return _strange(done.stdout + done.stderr)


def _unforeseen(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if "/fathom/" in frame.filename] or frames
    place = f"{mine[-1].filename.rpartition('/fathom/')[2]}:{mine[-1].lineno}"
    return f"{type(error).__name__} at {place}: {str(error)[:200]}"


def _strange(text: str) -> str | None:
    strange = {character for character in set(text) if _is_control(character)}
    return f"control characters {sorted(strange)} on the terminal" if strange else None


def _is_control(character: str) -> bool:
    return (
        character not in "\n\t"
        and unicodedata.category(character) in ("Cc", "Cf")
        and character not in "\u200d"
    )


if __name__ == "__main__":
    main()
