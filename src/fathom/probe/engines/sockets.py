"""The kernel's side of a server's connections: when data arrived and was sent, and what has yet to be read.

An event loop reads a request when it gets to it, and needs the interpreter before it can say when a write
ended. So arrival is the kernel's timestamp of the data, and a write counts from before its system call.
uvloop reads in C, without timestamps: there, arrival is known to a tick of the kernel's clock or two.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any
from weakref import WeakKeyDictionary

from fathom.pristine import time

SO_TIMESTAMPNS = 35  # asm-generic/socket.h
UNSENT = 0x894B  # SIOCOUTQNSD: bytes that the client's window has no room for, or the network not yet
STAMP = struct.Struct("qq")  # seconds, nanoseconds
COARSE = 6  # CLOCK_MONOTONIC_COARSE, linux/time.h
LAST_DATA = 52  # offset of tcpi_last_data_recv in the kernel's tcp_info, in milliseconds
NS_PER_MS, NS_PER_S = 1_000_000, 1_000_000_000
LINUX = sys.platform == "linux"
TICK_NS = round(time.clock_getres(COARSE) * NS_PER_S) if LINUX else 0  # of the kernel's clock
now = time.time_ns

_times: WeakKeyDictionary[socket.socket, Times] = WeakKeyDictionary()
_kept: list[socket.socket] = []


class Times:
    """When a socket last received data, and last sent some; 0 if unknown."""

    received = wrote = 0


class Stamped(socket.socket):
    """A socket that notes its times. It replaces the class of sockets that an event loop has accepted."""

    __slots__ = ()

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, and note when the kernel had the data."""
        data, extra, _, _ = self.recvmsg(size, socket.CMSG_SPACE(STAMP.size), flags)
        times = _times.get(self)
        if times is not None:
            times.received = next((_ns(value) for _, kind, value in extra if kind == SO_TIMESTAMPNS), 0)
        return data

    def send(self, data: Any, flags: int = 0) -> int:
        """Note the time, and send."""
        self._sends()
        return super().send(data, flags)

    def sendmsg(self, *args: Any) -> int:
        """Note the time, and send."""
        self._sends()
        return super().sendmsg(*args)

    def _sends(self) -> None:
        times = _times.get(self)
        if times is not None:
            times.wrote = now()


def _ns(value: bytes) -> int:
    seconds, rest = STAMP.unpack(value)
    return int(seconds * NS_PER_S + rest)


def listen() -> None:
    """Have the kernel stamp all packets from now on: it does while any socket asks for it."""
    if LINUX and not _kept:
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        _kept.append(asking)


def follow(transport: Any) -> None:
    """Note the times of a connection that was accepted. Only asyncio's own TCP transports can be followed."""
    connection = _connection(transport)
    if LINUX and type(connection) is socket.socket and _is_tcp(connection):
        connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        _times[connection] = Times()
        connection.__class__ = Stamped


def received(transport: Any) -> int:
    """Return when the kernel received the connection's last data; without a stamp, to some milliseconds."""
    connection = _connection(transport)
    times = _times.get(connection) if isinstance(connection, Stamped) else None
    return times.received if times is not None and times.received else now() - _waited_ns(transport)


def wrote(transport: Any, since: int) -> int | None:
    """Return when the connection last wrote, if that was not before `since`; None if it did not."""
    connection = _connection(transport)
    times = _times.get(connection) if isinstance(connection, Stamped) else None
    if times is None:
        return now()
    return times.wrote if times.wrote >= since else None


def queued(transport: Any) -> bool:
    """Return whether the transport has data that the kernel has no room for, as far as is known."""
    return transport is None or transport.get_write_buffer_size() > 0


def unsent(transport: Any) -> int:
    """Return the bytes that wait for the client: in the transport, and in the kernel."""
    connection = _connection(transport)
    if not LINUX or connection is None or not _is_tcp(connection) or _closed(transport, connection):
        return 0
    import fcntl

    kernel = struct.unpack("i", fcntl.ioctl(connection, UNSENT, b"\0" * 4))[0]
    return int(kernel + transport.get_write_buffer_size())


def _closed(transport: Any, connection: Any) -> bool:
    """Return whether the connection's number may be another file's by now, as after uvloop closed it."""
    return connection.fileno() < 0 or (not isinstance(connection, Stamped) and transport.is_closing())


def _connection(transport: Any) -> Any:
    """Return the socket of a transport, without asyncio's wrapping."""
    wrapped = transport.get_extra_info("socket") if transport is not None else None
    return getattr(wrapped, "_sock", wrapped)


def _is_tcp(connection: Any) -> bool:
    return connection.family in (socket.AF_INET, socket.AF_INET6)


def _waited_ns(transport: Any) -> int:
    """Return how long ago the kernel received the last data, by its own clock of 1 to 10 ms.

    One tick counts as no time: it may have passed right after the data came.
    """
    connection = transport.get_extra_info("socket") if transport is not None else None
    if not LINUX or connection is None or not _is_tcp(connection):
        return 0
    known = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_DATA + 4)
    waited = int(struct.unpack_from("I", known, LAST_DATA)[0]) * NS_PER_MS
    return waited if waited > TICK_NS else 0
