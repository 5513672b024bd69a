"""Print what a recording must not change: the state that a program and its processes find."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import warnings

random.seed(7)
CHILD = "import json, os, sys; print(json.dumps([dict(os.environ), sys.path], sort_keys=True))"


def environment_of(command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def shells_environment():
    with os.popen("env") as shell:  # waits for its end, after which its pipe is closed
        return sorted(shell.read().splitlines())


def signals():
    return {
        number.name: str(signal.getsignal(number)).split(" at ")[0]
        for number in signal.valid_signals()
        if isinstance(number, signal.Signals)
    }


def limits():
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def state():
    return {
        "child": environment_of([sys.executable, "-c", CHILD]),
        "env": sorted(environment_of(["env"]).splitlines()),
        "shell": shells_environment(),
        "environment": dict(os.environ),
        "path": sys.path,
        "files": sorted(os.listdir("/proc/self/fd")),
        "folder": os.getcwd(),
        "random": random.random(),
        "warnings": [str(entry) for entry in warnings.filters],
        "profile": [str(sys.getprofile()).split(" at ")[0], str(sys.gettrace()).split(" at ")[0]],
        "hooks": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
        "signals": signals(),
        "mask": sorted(map(str, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "limits": limits(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "sitecustomize": "sitecustomize" in sys.modules,
        "flags": str(sys.flags),
        "recursion": sys.getrecursionlimit(),
        "umask": os.umask(0o022),
    }


def report(before=None):
    """Print the state, without what differs between two runs of the same program."""
    text = json.dumps(state(), sort_keys=True, default=str)
    print(text, flush=True)
