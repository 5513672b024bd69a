"""Serve `/metrics` over HTTP, to this machine alone unless an address is given."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Iterator

from fathom.analysis.live import Live
from fathom.errors import BadInputError
from fathom.report import LiveCollector

LOOPBACK = "127.0.0.1"
MISSING = "--serve needs the package prometheus_client; install it with `pip install 'fathom-perf[watch]'`."


def address(text: str) -> tuple[str, int]:
    """Parse `PORT` or `ADDRESS:PORT`. Raises BadInputError."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else LOOPBACK
    try:
        ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        raise BadInputError(
            f"--serve {text}: {host!r} is not an IP address; write PORT or ADDRESS:PORT."
        ) from None
    if not port.isascii() or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise BadInputError(f"--serve {text}: {port!r} is not a port; write PORT or ADDRESS:PORT.")
    return host, int(port)


@contextlib.contextmanager
def served(to: str | None, newest: Callable[[], Live | None]) -> Iterator[str | None]:
    """Context manager that serves the newest view, and yields the URL; None if `to` is None.

    Raises BadInputError if `prometheus_client` is missing or the address cannot be used.
    """
    if to is None:
        yield None
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise BadInputError(MISSING) from None
    host, port = address(to)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LiveCollector(newest))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise BadInputError(f"--serve {to} cannot be used: {error.strerror}; choose another port.") from None
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
