"""The server: its tools and resources, over standard input and output or over HTTP on this machine."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import CallToolResult, InputRequiredResult, Resource, ToolAnnotations
from pydantic import ValidationError
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fathom.agent.acting import Acting
from fathom.agent.allowed import Allowed
from fathom.agent.answers import TOKENS, Pages, Result, answering, packed, text_of, tool_errors
from fathom.agent.reading import Reading
from fathom.agent.roots import Roots
from fathom.errors import FathomError
from fathom.version import VERSION

LOOPBACK = "127.0.0.1"
SCHEME = "sounding://"
RUN_S = 3600  # seconds that a program may run
INSTRUCTIONS = """Fathom shows where the time of a training or inference step goes, and proves fixes.
The loop: record a sounding, read `report` and `findings`, change one thing, `prove` it, keep it only if the
verdict is `faster`, else revert it; then record again. Never report a gain that was not proven. Answers are
short: `more` returns the rows behind a handle."""


class Server(MCPServer):
    """A server whose resources are the soundings in its roots, listed anew each time."""

    def __init__(self, roots: Roots, **options: Any) -> None:
        super().__init__("fathom", version=VERSION, instructions=INSTRUCTIONS, **options)
        self.roots = roots

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises ToolError, with one sentence for arguments that it does not take."""
        known = {tool.name: tool.input_schema for tool in await self.list_tools()}
        if name in known and (why := _unfit(known[name], arguments)):
            raise ToolError(f"{name} {why}.")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            first = error.__cause__.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ToolError(f"The argument {place} of {name} is not valid: {first['msg']}.") from None

    async def list_resources(self) -> list[Resource]:
        """Return the soundings in the roots."""
        return [self._resource(path) for path in await anyio.to_thread.run_sync(list, self.roots.soundings())]

    def _resource(self, path: Path) -> Resource:
        shown = self.roots.shown(path)
        about = "The report of this sounding: verdict, step, ledger."
        return Resource(
            uri=f"{SCHEME}{quote(shown)}", name=shown, description=about, mime_type="application/json"
        )


def _unfit(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    """Return which arguments are unknown or missing, and those that the tool takes; "" if none is."""
    takes = list(schema.get("properties", ()))
    unknown = [name for name in arguments if name not in takes]
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    if not unknown and not missing:
        return ""
    wrong = [f"does not take {', '.join(unknown)}"] if unknown else []
    wrong += [f"needs {', '.join(missing)}"] if missing else []
    return f"{' and '.join(wrong)}; its arguments are {', '.join(takes) or 'none'}"


def make_server(roots: Roots, allowed: Allowed, tokens: int = TOKENS, run_s: int = RUN_S) -> Server:
    """Return a server over the roots, with the tools that run programs only if any are allowed."""
    pages, reading = Pages(tokens), Reading(roots)
    server = Server(roots, log_level="WARNING", subscriptions=False)
    _add_reading(server, pages, reading)
    if allowed:
        acting = Acting(reading, allowed, run_s)
        runs = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
        for tool in (acting.record, acting.prove, acting.lab_run):
            server.add_tool(answering(tool, pages), annotations=runs)
    return server


def _add_reading(server: Server, pages: Pages, reading: Reading) -> None:
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
    for tool in (
        *(reading.report, reading.findings, reading.account, reading.kernel, reading.query),
        *(reading.compare, reading.what_if, reading.explain, reading.lab_show, reading.machine),
    ):
        server.add_tool(answering(tool, pages), annotations=reads)

    @server.tool(annotations=reads)
    def more(handle: str) -> Result:
        """Return the next rows of an answer that did not fit, by its handle `more`."""
        with tool_errors():
            return packed(pages.next(handle))

    @server.resource(SCHEME + "{+path}", mime_type="application/json")
    def sounding(path: str) -> str:
        """Return the report of a sounding, by its path relative to the first root."""
        try:
            return text_of(pages.first(reading.report(unquote(path))))
        except FathomError as error:
            raise ResourceError(str(error)) from None


def serve_stdio(server: Server) -> None:
    """Serve until standard input ends. Raises BrokenPipeError if the client left before its answer."""
    try:
        server.run("stdio")
    except Exception as error:
        if _left(error):
            raise BrokenPipeError from error
        raise


def _left(error: BaseException) -> bool:
    """Return whether a broken pipe is the error, or in its group of errors of tasks."""
    return isinstance(error, BrokenPipeError) or any(map(_left, getattr(error, "exceptions", ())))


def serve_http(server: Server, port: int, token: str) -> None:
    """Serve over streamable HTTP on the loopback interface, to clients that know the token."""
    import uvicorn

    uvicorn.run(guarded(server, token), host=LOOPBACK, port=port, log_level="warning")


def guarded(server: Server, token: str) -> ASGIApp:
    """Return the HTTP application, which answers only requests with the token.

    The SDK refuses requests of web pages: those with a foreign Host or Origin.
    """
    app, expected = server.streamable_http_app(host=LOOPBACK), f"Bearer {token}".encode()

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] != "http" or hmac.compare_digest(given, expected):
            await app(scope, receive, send)
            return
        refusal = PlainTextResponse("Send the header 'Authorization: Bearer TOKEN'.\n", 401)
        await refusal(scope, receive, send)

    return check
