"""`fathom mcp`: a server for coding agents."""

from __future__ import annotations

import os
from pathlib import Path

from typer import Option

from fathom.cli.console import examples, say
from fathom.errors import BadInputError

EXAMPLES = examples(
    "fathom mcp --root ~/project",
    "fathom mcp --allow-run 'python train.py *' --allow-run 'norm.py:*'",
    "FATHOM_MCP_TOKEN=secret fathom mcp --http 8765",
)
EXTRA = "The server for agents needs the MCP SDK: pip install 'fathom-perf[agent]'."
TOKEN = "FATHOM_MCP_TOKEN"


def mcp_(
    root: list[Path] | None = Option(
        None, help="Folder to read (repeatable). Programs run in the first one. [default: this folder]"
    ),
    allow_run: list[str] | None = Option(
        None,
        metavar="PATTERN",
        help="Let agents record and prove commands that match (repeatable): * matches any text within one"
        " argument, and as the last word all remaining arguments. For functions: 'norm.py:*'.",
    ),
    http: int | None = Option(
        None,
        metavar="PORT",
        help=f"Serve HTTP on 127.0.0.1 instead of standard input. Clients must send the token in {TOKEN};"
        " if it is not set, Fathom prints a new token.",
    ),
    tokens: int = Option(
        2000, min=500, help="Maximum tokens of an answer; the tool `more` returns the rest."
    ),
    time_limit: int = Option(3600, min=1, metavar="SECONDS", help="Maximum run time of a program."),
) -> None:
    """Serve soundings to coding agents through the Model Context Protocol.

    The server only reads, and only in the given folders. With --allow-run it also records and proves programs
    that match a pattern. It never uses a shell.
    """
    import secrets
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise BadInputError(EXTRA)
    from fathom.agent import Allowed, Roots, make_server, serve_http, serve_stdio

    server = make_server(Roots(root or [Path()]), Allowed(allow_run or []), tokens, time_limit)
    if http is None:
        serve_stdio(server)
        return
    given = os.environ.pop(TOKEN, "")  # programs do not inherit it
    token = given or secrets.token_urlsafe(24)
    header = f"Authorization: Bearer {f'${TOKEN}' if given else token}"
    say(f"http://127.0.0.1:{http}/mcp, with the header '{header}'")
    serve_http(server, http, token)
