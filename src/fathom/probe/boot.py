"""Start and end the recording of this process."""

from __future__ import annotations

import atexit
import sys

from fathom.pristine import os
from fathom.probe import current, ending, engines, faults, imports, inherited, threads
from fathom.probe.collecting import Handle, collections
from fathom.probe.conductor import FORKED
from fathom.probe.ending import EXCEPTION, UNCAUGHT
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches
from fathom.probe.plain import is_plain, torch_or_stand_in
from fathom.probe.plan import ProbePlan
from fathom.probe.session import Session

_collecting: list[Handle] = []  # for programs without torch
_patches = Patches()  # likewise
_registered = False


def start(raw: str, plan: dict[str, object] | None = None) -> None:
    """Record this process into the folder `raw`; install the hooks if torch is already imported."""
    global _registered
    if current.session is not None:
        return
    faults.reset()
    torch = torch_or_stand_in()
    session = Session(raw, ProbePlan.read(raw) if plan is None else ProbePlan.of(plan), torch)
    current.session = session
    faults.set_receiver(session.note)
    if session.plan.stop_after is not None:  # another rank may ask for the end
        ending.end_quietly(raw)
    if session.plan.acts or session.plan.switched:
        from fathom.probe import knobs

        knobs.install(session)
    _listen(session)
    if not _registered:
        _registered = True
        atexit.register(_at_exit)
        os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


@guarded("the beginning of the recording")
def begin(raw: str) -> None:
    """Call `start`; report a fault instead of raising it into the program."""
    start(raw)


def _listen(session: Session) -> None:
    if is_plain(session.torch):
        _collecting.append(collections(session))
        engines.install(session, _patches)
        return
    from fathom.probe.hooks import install

    install.install(session)


def _silence() -> None:
    while _collecting:
        _collecting.pop().remove()
        imports.forget()
        _patches.undo()
    if "torch" in sys.modules and "fathom.probe.hooks.install" in sys.modules:
        from fathom.probe.hooks import install

        install.remove()


def stop(reason: str = "stopped") -> None:
    """End the recording and remove the hooks."""
    session, current.session = current.session, None
    if session is not None:
        _silence()
        session.trials.hand_over()
        session.end(reason)
    faults.set_receiver(None)
    inherited.forget()


@guarded("the end of the recording")
def _at_exit() -> None:
    kind, error = getattr(sys, "last_type", None), ending.uncaught()
    if error is not None and current.session is not None:
        current.session.note(UNCAUGHT, ending.in_words(error))
    stop("exit" if kind is None else f"{EXCEPTION}{kind.__name__}")


@guarded("recording across a fork")
def _before_fork() -> None:
    if current.session is not None:
        current.session.suspend(FORKED)


@guarded("recording across a fork")
def _after_fork() -> None:
    if current.session is not None:
        parents, current.session = current.session, None
        faults.set_receiver(None)
        parents.records.forget()
        threads.forget()
        if parents.conductor.used_kineto:
            ending.skip_destructors()
        _silence()
        parents.trials.forget()
        parents.trials.hand_over()
        plan = dict(vars(parents.plan))
        if parents.conductor.used_kineto:  # its threads do not exist in this process
            plan["depth"] = "surface"
        start(parents.raw, plan)
