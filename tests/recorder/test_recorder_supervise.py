"""Classification of ends, ending of process trees, and signals on systems that say little about them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from fathom.recorder import supervise
from fathom.recorder.supervise import GRACE, Inbox, PortableInbox, Stopping, Supervisor, ending
from fathom.recorder.tree import ProcessTree
from tests.support.running import environment

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("code", "asked", "stopped", "ended", "status"),
    [
        (0, set(), False, "finished", 0),
        (7, set(), False, "exited", 7),
        (130, set(), False, "interrupted", 130),
        (0, {INT}, False, "interrupted", 0),
        (1, {TERM}, False, "interrupted", 1),
        (1, {signal.SIGUSR1}, False, "exited", 1),
        (-signal.SIGINT, set(), False, "interrupted", 130),
        (-signal.SIGTERM, set(), False, "interrupted", 143),
        (-signal.SIGKILL, set(), False, "killed", 137),
        (-signal.SIGABRT, set(), False, "crashed", 134),
        (-signal.SIGSEGV, {INT}, False, "interrupted", 139),
        (-signal.SIGKILL, set(), True, "stopped", 0),
        (1, set(), True, "stopped", 0),
    ],
)
def test_the_end_has_a_name(code, asked, stopped, ended, status):
    end = ending(code, asked, stopped)
    assert (end.ended, end.exit_status) == (ended, status)
    assert end.signal_number == (-code if code < 0 and not stopped else None)


class Sent:
    """A tree that only remembers."""

    def __init__(self):
        self.signals = []

    def send(self, number, but=()):
        self.signals.append(number)

    def agents(self):
        return {1}


def test_a_program_is_asked_ever_less_kindly():
    now, sent = [100.0], Sent()
    stopping = Stopping(sent, clock=lambda: now[0])
    heard = [list(sent.signals)]
    for _, grace in GRACE:
        now[0] += grace - 0.1
        stopping.go_on()
        now[0] += 0.2
        stopping.go_on()
        heard.append(list(sent.signals))
    kinds = [number for number, _ in GRACE]
    assert kinds == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    assert heard == [kinds[:1], kinds[:2], kinds[:3], kinds[:3]]


DEAF = """
import signal, subprocess, sys, time
for s in (signal.SIGINT, signal.SIGTERM):
    signal.signal(s, signal.SIG_IGN)
if len(sys.argv) < 2:
    child = subprocess.Popen([sys.executable, __file__, "child"])
    print(child.pid, flush=True)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_deaf_program_and_its_children_are_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "GRACE", tuple((number, 0.1) for number, _ in GRACE))
    (tmp_path / "deaf.py").write_text(DEAF)
    raw = tmp_path / "raw"
    raw.mkdir()
    process = subprocess.Popen([sys.executable, tmp_path / "deaf.py"], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(process.stdout.readline()))
    assert {process.stdout.readline(), process.stdout.readline()} == {"ready\n"}
    (raw / "stop").write_text("1")
    with Inbox() as inbox:
        end = Supervisor(process.pid, raw, inbox, stop=True, say=lambda _: None).wait()
    process.returncode = 0  # reaped by the supervisor
    assert (end.ended, end.signal, end.exit_status) == ("stopped", "SIGKILL", 0)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    process.stdout.close()


AGENT = """
import os, subprocess, sys
worker = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
sys.exit(subprocess.call(worker, env={**os.environ, "TORCHELASTIC_RUN_ID": "none"}) and 7)
"""


def test_an_agent_of_torchrun_ends_with_its_workers():
    agent = [sys.executable, "-c", AGENT]
    process = subprocess.Popen(agent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout.readline() == "ready\n"
    tree = ProcessTree(process.pid)
    assert tree.agents() == {process.pid}
    Stopping(tree)
    assert process.wait(60) == 7  # the agent was not interrupted: it returned its own status
    process.stdout.close()


INBOX = """
import os, signal
from fathom.recorder.supervise import KIND
before = signal.getsignal(signal.SIGUSR1)
with KIND() as inbox:
    assert inbox.wait(0) is None
    os.kill(os.getpid(), signal.SIGUSR1)
    assert inbox.wait(5) == (signal.SIGUSR1, False)
    os.kill(os.getpid(), signal.SIGTERM)  # never fetched: it must not end us afterwards
assert signal.getsignal(signal.SIGUSR1) is before
assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
print("lived")
"""


@pytest.mark.parametrize("kind", ["Inbox", "PortableInbox"])
def test_signals_arrive_in_the_inbox_and_handlers_come_back(kind):
    # In a separate process: a library's thread would receive the signal here.
    code = [sys.executable, "-c", INBOX.replace("KIND", kind)]
    assert subprocess.run(code, env=environment(), capture_output=True, text=True).stdout == "lived\n"


@pytest.mark.parametrize("kind", [Inbox, PortableInbox])
def test_a_program_is_waited_for_by_either_inbox(kind, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3); raise SystemExit(5)"])
    with kind() as inbox:
        end = Supervisor(process.pid, tmp_path, inbox, stop=False, say=lambda _: None).wait()
    process.returncode = 5
    assert (end.ended, end.exit_status) == ("exited", 5)


def test_the_tree_knows_grandchildren_and_their_memory():
    inner = "import time; print(1, flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    tree = ProcessTree(process.pid)
    assert len(tree.processes()) == 2
    alone = psutil.Process(process.pid).memory_info().rss
    assert tree.resident_bytes() > alone
    tree.send(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 10
    while tree.processes() and time.monotonic() < until:
        tree.refresh()
        time.sleep(0.01)
    assert tree.resident_bytes() is None
    process.stdout.close()
