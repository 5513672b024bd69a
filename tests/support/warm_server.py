"""The process that `warm.py` forks programs from: `warm_server.py SOCKET MODULE…`.

It imports the modules, and then takes torch out of `sys.modules`. When a program imports a module of torch, a
finder puts it back, so that whatever follows the program's imports (the probe does) sees them happen.
"""

import array
import faulthandler
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path

PACKAGES = ("torch", "triton")


class Thaw:
    """Finds modules that were imported before."""

    def __init__(self):
        self.modules, self.brought = {}, {}

    def freeze(self, module):
        """Import a module, and note which ones it brings in."""
        before = set(sys.modules)
        importlib.import_module(module)
        self.brought[module] = [name for name in _present() if name not in before]

    def hide(self):
        """Take all of torch out of `sys.modules`."""
        self.modules = {name: sys.modules.pop(name) for name in _present()}

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        return ModuleSpec(name, self, is_package=hasattr(self.modules[name], "__path__"))

    def create_module(self, spec):
        self.spec = self.modules[spec.name].__spec__
        return self.modules.pop(spec.name)

    def exec_module(self, module):
        vars(module)["__spec__"] = self.spec  # some modules refuse attributes
        for name in self.brought.pop(module.__name__, ()):
            if name in self.modules:
                self.bring(name)

    def bring(self, name):
        """Import a module that another one brings in."""
        package, _, attribute = name.rpartition(".")
        if package in self.modules:
            self.bring(package)
        parent = sys.modules.get(package)
        if parent is not None and not hasattr(parent, "__path__"):
            sys.modules[name] = self.modules.pop(name)  # a part of an extension
            return
        bound = vars(parent).get(attribute) if parent else None
        importlib.import_module(name)
        if parent and bound is not None:
            vars(parent)[attribute] = bound  # the package uses the name for something else


def _present():
    return [name for name in sys.modules if name.partition(".")[0] in PACKAGES]


def serve(server):
    """Fork for every request. Returns the request in the child, None in the server once it is at its end."""
    while first := receive(server, 8):
        header, ancillary = first
        streams = array.array("i")
        for _, _, data in ancillary:
            streams.frombytes(data)
        body, _ = receive(server, int.from_bytes(header, "little"))
        child = os.fork()
        if child == 0:
            server.close()
            return json.loads(body), streams
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        server.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "little", signed=True))
    return None


def receive(server, size):
    """So many bytes, and the first ones' ancillary data; None at the end."""
    data, ancillary, _, _ = server.recvmsg(size, socket.CMSG_SPACE(8))
    while data and len(data) < size:
        data += server.recv(size - len(data))
    return (data, ancillary) if data else None


def become(argv, environment, cwd, streams):
    """Make this process one that a new interpreter would have begun with these."""
    for to, stream in enumerate(streams, 1):
        os.dup2(stream, to)
        os.close(stream)
    faulthandler.register(signal.SIGRTMAX)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    threading.main_thread()._set_native_id()  # Python 3.11 keeps the parent's
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    added = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [cwd if argv[0] == "-m" else str(Path(argv[0]).resolve().parent), *added]
    sys.argv = argv
    sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ModuleNotFoundError:
        pass


if __name__ == "__main__":
    thaw = Thaw()
    for module in sys.argv[2:]:
        thaw.freeze(module)
    thaw.hide()
    sys.meta_path.insert(0, thaw)
    gc.freeze()  # programs do not collect or free what is here already
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        given, streams = request
        become(**given, streams=streams)
        if sys.argv[0] == "-m":
            del sys.argv[0]
            left = runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            left = runpy.run_path(sys.argv[0], run_name="__main__")  # lives until the interpreter ends
