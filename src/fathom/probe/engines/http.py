"""Requests as an ASGI server sees them: arrival, every chunk of the answer, the last byte.

uvicorn reads a request when its event loop gets to it, so the time at which the socket received it is asked
from the kernel, which knows it to some milliseconds.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from fathom.pristine import time
from fathom.probe.engines.hooked import hook
from fathom.probe.engines.serving import PART, Request, Serving
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches, after, before

TESTED = "uvicorn 0.54"
NS_PER_MS = 1_000_000
LAST_DATA = 52  # offset of tcpi_last_data_recv in the kernel's tcp_info, in milliseconds
BLOCKED_NS = 1_000_000  # a write that takes longer waited for the client
PROTOCOLS = {"h11_impl": "H11Protocol", "httptools_impl": "HttpToolsProtocol"}
now = time.time_ns


def install(serving: Serving, patches: Patches) -> None:
    """Wrap the application that uvicorn loads, and what its protocols do with data."""

    @guarded(PART)
    def loaded(config: Any) -> None:
        config.loaded_app = application(serving, config.loaded_app)

    @guarded(PART)
    def received(protocol: Any, data: bytes) -> None:
        serving.read.set(now() - _waited_ns(protocol.transport))

    hook(serving, patches, "uvicorn.config", TESTED, {"Config.load": after(loaded)})
    for module, name in PROTOCOLS.items():
        hooks = {f"{name}.data_received": before(received)}
        hook(serving, patches, f"uvicorn.protocols.http.{module}", TESTED, hooks)


def _waited_ns(transport: Any) -> int:
    """Return how long ago the kernel received the last data of this connection."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return 0
    known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA + 4)
    return int(struct.unpack_from("I", known, LAST_DATA)[0]) * NS_PER_MS


def application(serving: Serving, app: Any) -> Any:
    """Wrap an ASGI application to record its POST requests."""

    async def recorded(scope: Any, receive: Any, send: Any) -> Any:
        request = begun(serving, scope)
        if request is None:
            return await app(scope, receive, send)

        async def sending(message: Any) -> Any:
            start = now()
            try:
                return await send(message)
            finally:
                sent(serving, request, message, start)

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
    request.served = True
    serving.here.set(request)
    return request


@guarded(PART)
def sent(serving: Serving, request: Request, message: Any, start: int) -> None:
    """Note that a part of the answer was written."""
    end = now()
    if message["type"] == "http.response.start":
        request.status = message["status"]
    elif message.get("body"):
        request.chunks += 1
        request.end = end
        if request.token is not None and request.sent is None:
            request.sent = end
    serving.span(request, "send", start, end, BLOCKED_NS)


@guarded(PART)
def ended(serving: Serving, request: Request) -> None:
    """Note that the application is done with the request."""
    serving.left(request)
