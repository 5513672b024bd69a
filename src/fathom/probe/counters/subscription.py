"""CUPTI's one subscription: learn whether CUPTI is in use, time calls that wait, and detach CUPTI again."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from fathom.pristine import time
from fathom.probe.counters.calls import RUNTIME_DOMAIN
from fathom.probe.counters.launches import RuntimeCall
from fathom.probe.threads import native_id

ENTERED, LEFT = 0, 1  # CUPTI_API_ENTER, CUPTI_API_EXIT

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)


class CallbackData(ctypes.Structure):
    """The start of CUpti_CallbackData (cupti_callbacks.h)."""

    _fields_ = [
        ("site", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("function", "parameters", "returned", "symbol", "context")),
        ("context_id", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("correlation", ctypes.c_uint32),
    ]


class Subscription:
    """Subscribes to CUPTI's callbacks, as one client at a time may. `library` is this process's libcupti.

    Calls in which the host waits are timed by callbacks, which cost a few microseconds each. The activity
    records of the same calls (CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) make every step of a launch-bound program
    30 % longer (docs/decisions/0014-timeline.md).
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._callback = Callback(self._called)  # CUPTI keeps it while subscribed
        self._handle = ctypes.c_void_p()
        self._names: Mapping[int, str] = {}
        self._entered: dict[int, int] = {}
        self._calls: list[RuntimeCall] = []
        self._detaching = self._detached = False

    def possible(self) -> bool:
        """Return whether no other client has subscribed."""
        if not self._subscribe():
            return False
        self._end()
        return True

    def watch(self, names: Mapping[int, str]) -> None:
        """Time the runtime's calls with these callback ids, until `calls` returns them."""
        self._names = names
        if self._subscribe():
            for number in names:
                self._library.cuptiEnableCallback(ctypes.c_uint32(1), self._handle, RUNTIME_DOMAIN, number)

    def calls(self, offset: int) -> list[RuntimeCall]:
        """Stop timing, and return the calls; `offset` is CUPTI's clock minus the host's, in ns."""
        self._end()
        calls, self._calls = self._calls, []
        self._entered.clear()
        return [call._replace(start=call.start + offset, end=call.end + offset) for call in calls]

    def detach(self, touch: Callable[[], None]) -> bool:
        """Remove CUPTI from the process, as if it had never been used; return whether that worked.

        Attached, CUPTI makes every launch slower, even if it records nothing. `touch` calls CUDA's runtime:
        on leaving such a call CUPTI can be removed safely (documentation of cuptiFinalize).
        """
        if not self._subscribe():
            return False
        self._detaching, self._detached = True, False
        self._library.cuptiEnableDomain(ctypes.c_uint32(1), self._handle, RUNTIME_DOMAIN)
        touch()
        self._detaching = False
        if not self._detached:
            self._end()
        return self._detached

    def _subscribe(self) -> bool:
        self._handle = ctypes.c_void_p()
        return not self._library.cuptiSubscribe(ctypes.byref(self._handle), self._callback, None)

    def _end(self) -> None:
        if self._handle.value:
            self._library.cuptiUnsubscribe(self._handle)
        self._handle = ctypes.c_void_p()

    def _called(self, _: Any, __: int, number: int, data: int) -> None:
        now = time.time_ns()
        call = CallbackData.from_address(data)
        if self._detaching:
            if call.site == LEFT:
                self._detaching = False  # other threads may call while CUPTI is being removed
                self._detached = self._library.cuptiFinalize() == 0
        elif call.site == ENTERED:
            self._entered[call.correlation] = now
        elif (begun := self._entered.pop(call.correlation, None)) is not None:
            name = self._names.get(number, "")
            self._calls.append(RuntimeCall(call.correlation, name, native_id(), begun, now))
