"""Requests as an ASGI server sees them: arrival, every chunk of the answer, the last byte.

An answer that the client is slow to read ends when the kernel could send its last byte, or when the server
closed the connection: uvicorn does 5 s after the last write.
"""

from __future__ import annotations

from typing import Any

from fathom.pristine import time
from fathom.probe.engines import sockets
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import PART, Request, Serving
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after, before

TESTED = "uvicorn 0.54"
SERVER = "server"  # a note that explains a recording without steps
BLOCKED_NS = 1_000_000  # a write that takes longer waited for the client
LOOKS_S, LOOKS = 0.002, 0.01  # between looks at a slow client: at least, and of the time since the last write
PROTOCOLS = {"h11_impl": "H11Protocol", "httptools_impl": "HttpToolsProtocol"}
now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Wrap the application that uvicorn loads, and what its protocols do with data."""

    @guarded(PART)
    def loaded(config: Any) -> None:
        sockets.listen()
        serving.session.note(SERVER, "uvicorn started")
        config.loaded_app = application(serving, config.loaded_app)

    @guarded(PART)
    def connected(_: Any, transport: Any) -> None:
        sockets.follow(transport)

    @guarded(PART)
    def received(protocol: Any, data: bytes) -> None:
        serving.transport.set(protocol.transport)
        serving.read.set(sockets.received(protocol.transport))

    hook(serving, patches, "uvicorn.config", TESTED, {"Config.load": after(loaded)})
    for module, name in PROTOCOLS.items():
        hooks = {f"{name}.data_received": before(received), f"{name}.connection_made": before(connected)}
        hook(serving, patches, f"uvicorn.protocols.http.{module}", TESTED, hooks)


def application(serving: Serving, app: Any) -> Any:
    """Wrap an ASGI application to record its POST requests."""

    async def recorded(scope: Any, receive: Any, send: Any) -> Any:
        request = begun(serving, scope)
        if request is None:
            return await app(scope, receive, send)

        async def sending(message: Any) -> Any:
            start, late = now(), waits(request)
            try:
                return await send(message)
            finally:
                sent(serving, request, message, start, late)

        try:
            return await app(scope, receive, sending)
        finally:
            ended(serving, request)

    return recorded


@guarded(PART)
def begun(serving: Serving, scope: Any) -> Request | None:
    """Return the request that arrived; None if it cannot be one for the engine."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    request = serving.arrived(serving.read.get() or now())
    request.served, request.transport = True, serving.transport.get()
    serving.here.set(request)
    return request


@guarded(PART)
def waits(request: Request) -> bool:
    """Return whether earlier parts of the answer wait for the client."""
    return sockets.queued(request.transport)


@guarded(PART)
def sent(serving: Serving, request: Request, message: Any, start: int, late: bool | None) -> None:
    """Note that a part of the answer was written; the last one, which may be empty, ends it.

    It waited for the client if earlier parts did (`late`): otherwise it waited for a core.
    """
    end = now()
    wrote = sockets.wrote(request.transport, start)
    if message["type"] == "http.response.start":
        request.status = message["status"]
    elif wrote is not None:
        request.end = wrote
        if message.get("body"):
            request.chunks += 1
            if request.token is not None and request.sent is None:
                request.sent = wrote
    if late:
        serving.span(request, "send", start, end, BLOCKED_NS)


@guarded(PART)
def ended(serving: Serving, request: Request) -> None:
    """Note that the application is done with the request; the client may not be."""
    _drain(serving, request, request.end or now())


@guarded(PART)
def _drain(serving: Serving, request: Request, since: int) -> None:
    """Wait until the kernel could send the answer, and record the request."""
    import asyncio  # the server's; other programs need not import it

    waited = now() - since
    if sockets.unsent(request.transport):
        pause = max(LOOKS_S, LOOKS * waited / sockets.NS_PER_S)
        asyncio.get_running_loop().call_later(pause, _drain, serving, request, since)
        request.drained = True
        return
    if request.drained:
        request.end = now()
        serving.span(request, "send", since, request.end)
    request.transport = None
    serving.left(request)
