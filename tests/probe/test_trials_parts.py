"""The parts of a trial, each by itself: nothing is lost, reordered or left changed."""

from __future__ import annotations

import builtins
import collections
import gc
import logging
import os
import random
import sys
import threading
import time
import types
from gc import isenabled  # without hooks

import pytest

torch = pytest.importorskip("torch")

from fathom.probe.hooks import trials as hooks  # noqa: E402
from fathom.probe.hooks.patches import Patches  # noqa: E402
from fathom.probe.orders import Job  # noqa: E402
from fathom.probe.phases import Phases  # noqa: E402
from fathom.probe.plan import ProbePlan  # noqa: E402
from fathom.probe.trials import ahead as ahead_of  # noqa: E402
from fathom.probe.trials import garbage, rounds, trials  # noqa: E402
from fathom.probe.trials.ahead import Ahead, LoaderState  # noqa: E402
from fathom.probe.trials.garbage import Garbage  # noqa: E402
from fathom.probe.trials.silence import Silence  # noqa: E402
from fathom.probe.trials.trials import Trials  # noqa: E402

MS = 1_000_000


class Batches:
    """An iterator of so many batches, which may fail at one."""

    def __init__(self, count, broken=None):
        self.at, self.count, self.broken, self.asked = 0, count, broken, 0

    def following(self):
        self.asked += 1
        if self.at == self.count:
            raise StopIteration
        self.at += 1
        if self.at - 1 == self.broken:
            raise ValueError(f"batch {self.broken}")
        return torch.full((2,), float(self.at - 1))


def _taken(ahead, batches, events=None, most=200):
    """The program's batches, and how it ended; `events` act before the n-th batch."""
    got, failed = [], []
    for n in range(most):
        for act in (events or {}).get(n, ()):
            act()
        try:
            got.append(int(ahead.next(batches, Batches.following, LoaderState(0))[0]))
        except StopIteration:
            return got, failed
        except ValueError as error:
            failed.append((len(got), str(error)))
    return got, failed


@pytest.mark.parametrize("seed", range(20))
def test_batches_come_once_and_in_order_whenever_a_trial_begins_and_ends(seed):
    dice = random.Random(seed)
    ahead, broken = Ahead(), dice.choice([None, dice.randrange(60)])
    events: dict[int, list] = {n: [] for n in range(200)}
    for start in sorted(dice.sample(range(60), 4)):
        events[start] += [ahead.watch]
        events[start + 3] += [lambda: ahead.watched(3), lambda: ahead.begin(dice.randrange(1, 12))]
        events[start + dice.randrange(4, 10)] += [ahead.end]
    got, failed = _taken(ahead, Batches(60, broken), events)
    assert got == [n for n in range(60) if n != broken]
    assert failed == ([] if broken is None else [(broken, f"batch {broken}")])
    assert not ahead.pending


def test_batches_of_a_trial_are_in_hand_before_its_steps():
    ahead, batches = Ahead(), Batches(60)
    ahead.watch()
    _taken(ahead, batches, most=8)
    ahead.watched(8)
    ahead.begin(8)
    _taken(ahead, batches, most=1)
    asked = batches.asked
    _taken(ahead, batches, most=8 + rounds.WARM)
    assert batches.asked == asked and ahead.why == ""


def test_prefetched_batches_reach_the_program_after_the_hooks_are_removed():
    ahead, batches, served = Ahead(), Batches(60), []
    ahead.serve = lambda: served.append(True)
    ahead.hand_over()
    assert served == []
    ahead.watch()
    first, _ = _taken(ahead, batches, most=8)
    ahead.watched(8)
    ahead.begin(8)
    second, _ = _taken(ahead, batches, most=3)
    ahead.hand_over()
    assert served == [True]
    third, _ = _taken(ahead, batches)
    assert first + second + third == list(range(60))


def test_the_rest_of_an_abandoned_epoch_is_dropped_with_its_iterator():
    ahead, batches = Ahead(), Batches(20)
    ahead.watch()
    _taken(ahead, batches, most=8)
    ahead.watched(8)
    ahead.begin(30)
    got, _ = _taken(ahead, batches, most=3)
    assert ahead.pending and batches.at == 20
    del batches
    assert not ahead.pending and ahead.settled and got == [8, 9, 10]


def test_batches_that_do_not_fit_are_not_fetched(monkeypatch):
    monkeypatch.setattr(ahead_of, "MOST_BYTES", 50)
    ahead, batches = Ahead(), Batches(60)
    ahead.watch()
    _taken(ahead, batches, most=8)
    ahead.watched(8)
    ahead.begin(8)
    got, _ = _taken(ahead, batches)
    assert got == list(range(8, 60)) and ahead.why == ahead_of.TOO_LARGE


def test_every_kind_of_batch_has_its_weight():
    numpy = pytest.importorskip("numpy")
    Pair = collections.namedtuple("Pair", "image label")
    shared = torch.zeros(3, dtype=torch.uint8).share_memory_()
    size: collections.Counter[str] = collections.Counter()
    ahead_of._weigh({"a": [numpy.zeros(5, "u1"), b"12"], "b": Pair(shared, "abcd"), "c": 1}, size)
    assert size == {"host": 5 + 2 + 3 + 4, "shared": 3}


def test_batches_on_a_device_need_room_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (400, 1000))
    assert ahead_of._room("cuda:0") == ahead_of.MEMORY_SHARE * 400 and ahead_of._room("mps:0") == 0

    class Device:
        type = "cuda"

        def __str__(self):
            return "cuda:0"

    batch = types.SimpleNamespace(untyped_storage=None, device=Device(), nbytes=50)
    assert ahead_of._fits([batch], 2) and not ahead_of._fits([batch], 3)


@pytest.mark.parametrize(("elsewhere", "why"), [(False, "NO_LOADER"), (True, "OTHER_THREAD")])
def test_a_missing_loader_or_another_threads_is_reported(elsewhere, why):
    ahead, batches = Ahead(), Batches(60)
    ahead.watch()
    if elsewhere:
        thread = threading.Thread(target=_taken, args=(ahead, batches), kwargs={"most": 8})
        thread.start()
        thread.join()
    ahead.watched(8)
    ahead.begin(8)
    assert ahead.why == getattr(ahead_of, why) and not ahead.open


def test_a_loader_that_can_save_its_state_is_not_tried():
    ahead, batches = Ahead(), Batches(60)
    batches.state_dict = dict
    ahead.watch()
    _taken(ahead, batches, most=8)
    assert ahead.why == ahead_of.STATEFUL


@pytest.fixture
def silence():
    """Hooked into print, logging and a made-up writer."""
    trial, patches = Silence(), Patches()
    session = types.SimpleNamespace(trials=types.SimpleNamespace(get={"logging": trial}.get))
    hooks.install(session, patches)
    yield trial
    trial.end()
    patches.undo()


def test_buffered_output_equals_the_programs_output(silence, capfd):
    log = logging.Logger("trial")
    log.addHandler(logging.StreamHandler(sys.stdout))

    def say():
        loss = torch.ones(1, requires_grad=True).sum() * 2
        plain, matrix, table = torch.zeros(2), torch.eye(2, requires_grad=True), {"a": [1, loss]}
        print("loss", loss, plain, matrix, table, sep="|")
        log.info("loss %s %.2f %s", loss, 0.5, plain)
        log.info("%(a)s", {"a": plain})
        log.warning("now")
        print(f"{loss}", object, end="!\n")
        plain += 1
        table["a"][0] = 2
        print(None, 1, b"x", (plain, 2.5))

    print("stream")
    say()
    sys.stdout.flush()
    plain = capfd.readouterr().out.removeprefix("stream\n")
    silence.begin(8)
    say()
    sys.stdout.flush()
    during = capfd.readouterr().out
    silence.end()
    sys.stdout.flush()
    assert during + capfd.readouterr().out == plain
    assert during.endswith("now\n") and "None 1" not in during


def test_arguments_that_cannot_be_copied_or_formatted_behave_as_usual(silence, capfd, monkeypatch):
    log = logging.Logger("trial")
    log.addHandler(logging.StreamHandler(sys.stdout))
    within_itself: list = [1]
    within_itself.append(within_itself)

    def say():
        print(within_itself, torch.eye(2).to_sparse())
        log.info("no placeholder", object)  # logging writes of the mistake, and raises nothing
        log.info("%s", within_itself)

    monkeypatch.setattr(logging, "raiseExceptions", False)
    say()
    sys.stdout.flush()
    plain = capfd.readouterr().out
    silence.begin(8)
    say()
    silence.end()
    sys.stdout.flush()
    assert capfd.readouterr().out == plain and "[1, [...]]" in plain


def test_output_to_other_targets_or_threads_is_not_buffered(silence, capfd, tmp_path):
    silence.begin(8)
    with (tmp_path / "log").open("w") as file:
        print("file", file=file)
    thread = threading.Thread(target=print, args=("thread",))
    thread.start()
    thread.join()
    assert (tmp_path / "log").read_text() == "file\n"
    sys.stdout.flush()
    assert capfd.readouterr().out == "thread\n"


def test_writers_are_kept_in_order_and_too_much_is_not(monkeypatch):
    silence, patches, calls = Silence(), Patches(), []

    class SummaryWriter:
        def add_scalar(self, *args, **kwargs):
            calls.append((args, kwargs))

    module = types.SimpleNamespace(SummaryWriter=SummaryWriter)
    around = hooks.unseen(hooks._kept, silence, True)
    hooks._wrap(patches, "SummaryWriter", ("add_scalar", "add_text"), around, module)
    writer, value = SummaryWriter(), torch.ones(4)
    silence.begin(8)
    writer.add_scalar("a", value, global_step=1)
    value.zero_()
    assert calls == []
    silence._left = 10
    writer.add_scalar("b", value)  # no longer fits: what was before it comes first
    assert [args[0] for args, _ in calls] == ["a", "b"] and calls[0][0][1].sum() == 4
    writer.add_scalar("c", 1.0)
    silence.end()
    assert [args[0] for args, _ in calls] == ["a", "b", "c"]


def test_buffered_output_reaches_streams_before_they_close(silence, capfd, tmp_path):
    log, file = logging.Logger("trial"), logging.FileHandler(tmp_path / "log")
    log.addHandler(file)
    silence.begin(8)
    log.info("first")
    log.removeHandler(file)
    log.info("nobody is there")
    log.addHandler(file)
    log.info("second")
    file.close()
    assert (tmp_path / "log").read_text() == "first\nsecond\n"
    print("before the traceback")
    sys.excepthook(ValueError, ValueError("planted"), None)
    sys.stdout.flush()
    assert capfd.readouterr().out.endswith("before the traceback\n")


def test_a_thread_that_holds_a_handler_does_not_wait_for_the_one_that_steps(silence):
    """Which may hold the lock, and wait for the handler."""
    with silence._lock:
        silence.begin(8)
        thread = threading.Thread(target=print, args=("thread",), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def test_hooks_are_gone_after_a_trial():
    before = [builtins.print, logging.Logger.callHandlers, sys.excepthook, os.execv, gc.collect]
    patches, trials_of = Patches(), {"logging": Silence(), "gc": Garbage()}
    hooks.install(types.SimpleNamespace(trials=types.SimpleNamespace(get=trials_of.get)), patches)
    assert builtins.print is not before[0]
    patches.undo()
    assert before == [builtins.print, logging.Logger.callHandlers, sys.excepthook, os.execv, gc.collect]


def test_ctrl_c_while_writing_loses_nothing_else():
    silence, written = Silence(), []

    def write(what):
        if what == "stop":
            raise KeyboardInterrupt
        written.append(what)

    silence.begin(8)
    for what in ("a", "stop", "b"):
        assert silence.keeps(write, (what,), {})
    with pytest.raises(KeyboardInterrupt):
        silence.end()
    silence.end()
    assert written == ["a", "b"]


def test_a_program_that_restores_garbage_collection_finds_it_on_after_the_trial():
    trial, patches = Garbage(), Patches()
    hooks.install(types.SimpleNamespace(trials=types.SimpleNamespace(get={"gc": trial}.get)), patches)
    try:
        trial.begin(8)
        before = gc.isenabled()  # as timeit does
        gc.disable()
        if before:
            gc.enable()
        trial.end()
        assert gc.isenabled()
    finally:
        patches.undo()
        gc.enable()


@pytest.mark.parametrize("enabled", [True, False])
def test_collections_are_as_before(enabled, monkeypatch):
    trial, patches = Garbage(), Patches()
    session = types.SimpleNamespace(trials=types.SimpleNamespace(get={"gc": trial}.get))
    (gc.enable if enabled else gc.disable)()
    try:
        hooks.install(session, patches)
        trial.begin(8)
        before = gc.get_stats()[2]["collections"]
        assert not isenabled() and gc.collect() == 0 and gc.isenabled() == enabled
        assert gc.get_stats()[2]["collections"] == before
        trial.end()
        trial.end()
        assert gc.isenabled() == enabled
        gc.collect()
        assert gc.get_stats()[2]["collections"] == before + 1
    finally:
        patches.undo()
        gc.enable()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("on", [True, False])
def test_the_program_s_own_word_on_collections_holds_after_the_trial(before, on):
    trial, patches = Garbage(), Patches()
    hooks.install(types.SimpleNamespace(trials=types.SimpleNamespace(get={"gc": trial}.get)), patches)
    try:
        (gc.enable if before else gc.disable)()
        trial.begin(8)
        (gc.enable if on else gc.disable)()
        assert not isenabled() and gc.isenabled() == on
        trial.end()
        assert gc.isenabled() == isenabled() == on
    finally:
        patches.undo()
        gc.enable()


def test_with_little_memory_left_garbage_is_collected(monkeypatch):
    monkeypatch.setattr(garbage, "_nearly_full", lambda: True)
    trial = Garbage()
    trial.begin(8)
    assert trial.why == garbage.FULL and gc.isenabled()


def _trials(kinds):
    messages: list[tuple[str, str]] = []
    return Trials(kinds, lambda what, text: messages.append((what, text))), messages


def test_a_stretch_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(trials, "LAPSE_S", 0.01)
    run, said = _trials(["gc"])
    assert run.arm(Job("trial-gc", 8), 0.0)
    while run.open:
        time.sleep(0.005)
    assert gc.isenabled()
    assert not run.start(Job("trial-gc", 8))
    assert said == [("what-if gc", trials.LAPSED)]


def test_ranks_that_wait_for_each_other_try_nothing(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    run, said = _trials(["gc", "input"])
    run.restart()
    run.restart()
    assert [what for what, _ in said] == ["what-if gc", "what-if input"]
    assert run.refused == ["trial-gc", "trial-input"]


def test_an_abandoned_trial_changes_nothing_when_retried():
    run, said = _trials(["gc"])
    assert run.arm(Job("trial-gc", 8), 1e6)
    run.finish()
    assert len(said) == 1
    assert not run.arm(Job("trial-gc", 8), 1e6)
    assert gc.isenabled() and not run.open and len(said) == 1


def test_trials_interrupted_repeatedly_are_abandoned():
    run, said = _trials(["gc"])
    for _ in range(trials.MOST_CUT + 1):  # not in a row
        assert run.arm(Job("trial-gc", 8), 1e6)
        run.cut("the program forked")
        run.stop(Job("trial-baseline", 8))
        assert run.arm(Job("trial-gc", 8), 1e6) and run.start(Job("trial-gc", 8))
        run._of["gc"]._seen = 1
        run.stop(Job("trial-gc", 8))
    for _ in range(trials.MOST_CUT):
        assert said == [] and run.arm(Job("trial-gc", 8), 1e6)
        run.cut("the program forked")
        assert gc.isenabled()
    assert run.refused == ["trial-gc"] and len(said) == 1 and "forked" in said[0][1]


def test_a_program_that_ends_early_gets_the_number_of_trials():
    run, said = _trials(["gc"])
    assert run.arm(Job("trial-gc", 8), 1e6) and run.start(Job("trial-gc", 8))
    run.finish()
    assert gc.isenabled()
    assert said[0][0] == "what-if gc" and "ended after 0 of the" in said[0][1]


def _labels(plan, steps, refused=(), unsettled=range(0)):
    """The phase of each step; `refused` is given up when it first begins."""
    phases, labels = Phases(plan), []
    for k in range(steps):
        phases.unsettled = k in unsettled
        orders = phases.at(k, 10 * MS * k)
        if orders.start is not None and orders.start.phase in refused:
            phases.interrupted()
            phases.without(orders.start.phase)
            labels.append("transition")
            continue
        labels.append(orders.phase)
        if orders.stop is not None:
            phases.stopped(1000)
    return labels


def _order(labels):
    stretches = [label for n, label in enumerate(labels) if n == 0 or labels[n - 1] != label]
    return [label for label in stretches if label != "transition"]


def test_trials_come_between_clean_steps_and_the_timeline():
    result = _order(_labels(ProbePlan(settle=3, what_if=["input", "gc"]), 600))
    tried = ["trial-baseline", "trial-gc", "trial-input"] * rounds.ROUNDS + ["trial-baseline"]
    assert result[: 2 + len(tried)] == ["settle", "clean", *tried]
    assert result[2 + len(tried) :][:2] == ["clean", "timeline"]


@pytest.mark.parametrize("depth", ["timeline", "surface"])
def test_steps_that_were_asked_for_are_recorded_before_anything_is_tried(depth):
    labels = _labels(ProbePlan(settle=3, at=[40], depth=depth, what_if=["gc"]), 900)
    assert labels.count("trial-gc") >= 8 * rounds.ROUNDS
    if depth == "timeline":
        assert 40 <= labels.index("timeline") < 50 and labels.index("trial-gc") > 50


def test_surface_tries_things_too_and_nobody_does_unasked():
    plan = ProbePlan(settle=3, depth="surface", what_if=["gc"])
    assert _order(_labels(plan, 600))[-2:] == ["trial-baseline", "clean"]
    assert not any(label.startswith("trial") for label in _labels(ProbePlan(settle=3), 600))


def test_impossible_trials_are_left_out():
    plan = ProbePlan(settle=3, depth="surface", what_if=["gc", "input"])
    result = _order(_labels(plan, 600, refused=["trial-input"]))
    assert result.count("trial-gc") == rounds.ROUNDS and "trial-input" not in result
    alone = _order(_labels(ProbePlan(settle=3, depth="surface", what_if=["gc"]), 600, refused=["trial-gc"]))
    assert alone.count("trial-baseline") <= 2


def test_unchanged_steps_wait_until_a_trial_has_worn_off():
    plan = ProbePlan(settle=3, depth="surface", what_if=["input"])
    labels = _labels(plan, 600)
    after = len(labels) - 1 - labels[::-1].index("trial-input")
    first = labels.index("trial-input")
    end = labels.index("transition", first)
    values = _labels(plan, 600, unsettled=range(end, end + 30))
    assert (
        set(values[end : end + 30]) == {"transition"} and values[end + 30 + rounds.WARM] == "trial-baseline"
    )
    assert after > end
