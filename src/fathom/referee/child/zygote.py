"""`python -m fathom.referee.child.zygote SOCKET MODULE…`: imports the modules, then forks on request."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import warnings
from contextlib import suppress

from fathom.referee.child.serving import end_with_parent, serve
from fathom.referee.protocol import Spec


def main() -> None:
    """Serve requests: a length of four bytes with the file descriptors of three pipes, then a spec."""
    parent = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        with suppress(ImportError):  # the side that needs it reports it
            importlib.import_module(module)
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # because numpy has started threads
    del sys.argv[1:]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that the kernel reaps children
    while True:
        head, descriptors, _, _ = socket.recv_fds(parent, 4, 3)
        if not head:
            return
        spec = json.loads(parent.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            parent.close()
            _serve(spec, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        parent.sendall(pid.to_bytes(4, "big"))


def _serve(spec: Spec, ask: int, answer: int, errors: int) -> None:
    with suppress(OSError):
        os.setsid()
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(errors, 2)
    try:
        with os.fdopen(ask) as reading, os.fdopen(answer, "w") as writing:
            serve(spec, reading, writing)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
