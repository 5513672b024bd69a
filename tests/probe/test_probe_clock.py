"""Which events of a program its steps are counted by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fathom.probe.chooser import Chooser, StepSignal
from fathom.probe.steps import StepFacts


class Events:
    """Feeds a chooser, and counts how often its clock ticked."""

    def __init__(self, step_on: str = "auto") -> None:
        self.chooser = Chooser(step_on)
        self.ns = 0

    def __call__(self, *events: tuple[str, int], times: int = 1, grad: bool = True) -> tuple[str, int] | None:
        for source, key in events * times:
            self.ns += 1
            signal = StepSignal(source, key, self.ns, 0, grad)
            if self.chooser.clock == (source, key):
                self.chooser.tick(signal)
            else:
                self.chooser.take(signal)
        return self.chooser.clock


OPTIMIZER, LOADER, FORWARD, REPLAY, MARK = (
    ("optimizer", 1),
    ("loader", 2),
    ("forward", 3),
    ("replay", 4),
    ("mark", 0),
)


def test_the_optimizer_goes_before_batches_and_calls():
    assert Events()(LOADER, FORWARD, OPTIMIZER, times=3) == OPTIMIZER


def test_an_explicit_mark_goes_before_everything():
    assert Events()(LOADER, FORWARD, OPTIMIZER, MARK, times=3) == MARK


def test_batches_wait_for_an_optimizer_to_show_up():
    events = Events()
    assert events(LOADER, FORWARD, times=7) is None
    assert events(OPTIMIZER, times=2) == OPTIMIZER


def test_without_an_optimizer_batches_are_steps():
    assert Events()(LOADER, FORWARD, times=20) == LOADER


def test_a_late_optimizer_takes_over():
    events = Events()
    assert events(LOADER, FORWARD, times=40) == LOADER
    assert events(OPTIMIZER, LOADER, times=3) == OPTIMIZER


def test_without_gradients_nobody_waits_for_an_optimizer():
    assert Events()(FORWARD, times=4, grad=False) == FORWARD
    assert Events()(FORWARD, times=4, grad=True) is None


def test_replays_take_over_from_an_optimizer_that_went_into_the_graph():
    events = Events()
    assert events(LOADER, OPTIMIZER, times=5) == OPTIMIZER
    assert events(LOADER, REPLAY, times=20) == REPLAY


def test_replays_beside_an_optimizer_do_not_count_as_steps():
    assert Events()(REPLAY, ("replay", 5), OPTIMIZER, times=50) == OPTIMIZER


def test_of_many_graphs_in_an_iteration_one_is_the_clock():
    chosen = Events()(("replay", 1), ("replay", 2), ("replay", 3), times=20)
    assert chosen is not None and chosen[0] == "replay"


def test_a_rare_optimizer_is_not_the_clock():
    events = Events()
    for _ in range(3):
        events(OPTIMIZER, times=100)
        events(("optimizer", 9))
    assert events.chooser.clock == OPTIMIZER


def test_requested_sources_are_used():
    assert Events("loader")(LOADER, OPTIMIZER, times=10) == LOADER
    assert Events("forward")(LOADER, FORWARD, OPTIMIZER, times=10) == FORWARD
    assert Events("none")(LOADER, FORWARD, OPTIMIZER, MARK, times=50) is None


def test_the_kind_of_a_step_follows_from_its_batches():
    facts, kinds = StepFacts(), []
    for loader in (1, 2):
        facts.epoch(loader)
    for step in range(10):
        facts.batch(1, 10 * step, 4, None)
        if step == 6:
            facts.batch(2, 10 * step + 1, 4, None)
        if step == 8:
            facts.epoch(1)
        kinds.append(facts.close("train", 10 * step + 5)[0])
    assert kinds == ["train"] * 6 + ["train+evaluation", "train", "train+epoch start", "train"]


def test_two_loaders_that_always_deliver_do_not_mean_evaluation():
    facts = StepFacts()
    for step in range(5):
        facts.batch(1, 10 * step, 4, None)
        facts.batch(2, 10 * step + 1, 8, None)
        assert facts.close("train", 10 * step + 5)[0] == "train"


def test_a_batch_belongs_to_the_step_of_its_arrival():
    facts = StepFacts()
    for ns in (1, 2, 3, 11, 12):
        facts.batch(1, ns, 4, 40)
    assert facts.close("train", 5) == ("train", 12, 120, [1, 2, 3])
    assert facts.close("train", 15) == ("train", 8, 80, [11, 12])
    assert facts.close("train", 25) == ("train", None, None, [])


def test_a_recaptured_graph_replaces_the_old_one():
    events = Events()
    assert events(REPLAY, times=20) == REPLAY
    assert events(("replay", 5), times=9) == REPLAY  # a pause, such as an evaluation
    assert events(REPLAY, ("replay", 5), times=9) == REPLAY
    assert events(("replay", 5), times=150) == ("replay", 5)


def test_a_graph_that_is_replayed_seldom_stays_the_clock():
    events = Events()
    assert events(REPLAY, *[("replay", 5)] * 24, times=20) == REPLAY


def test_a_graph_that_was_last_replayed_before_it_became_the_clock_gives_way():
    events = Events()
    cycle = [("replay", key) for key in (5, 6, 7)]
    assert events(("replay", 5), REPLAY, times=7) is None
    assert events(("replay", 5)) == REPLAY  # the last of what had been a cycle
    result = events(*cycle, times=100)
    assert result in cycle


def test_a_graph_that_died_while_the_clock_was_silent_does_not_take_over():
    events = Events()
    events(REPLAY, times=9)
    events(("replay", 9))  # replayed once, and captured anew as well
    assert events(("replay", 5), ("replay", 6), times=150) in [("replay", 5), ("replay", 6)]


def test_calls_replace_graphs_while_none_are_replayed():
    events = Events()
    assert events(FORWARD, REPLAY, times=20) == REPLAY
    assert events(FORWARD, times=20) == REPLAY  # a pause of ten usual ones is none yet
    assert events(FORWARD, times=8) == FORWARD
    assert events(LOADER, FORWARD, times=3) == LOADER
    assert events(REPLAY, FORWARD) == REPLAY


def test_an_optimizer_that_pauses_stays_the_clock():
    events = Events()
    assert events(FORWARD, OPTIMIZER, times=20) == OPTIMIZER
    assert events(FORWARD, times=500) == OPTIMIZER  # an evaluation


def test_a_step_like_the_last_one_needs_its_batch_and_no_other():
    facts = StepFacts()
    for ns in (0, 10, 20):
        facts.batch(1, ns, 4, None)
        facts.close("train", ns + 5)
    assert not facts.alike
    facts.batch(1, 30, 4, None)
    assert facts.alike
    facts.batch(2, 31, 4, None)
    assert not facts.alike and facts.close("train", 35)[0] == "train+evaluation"


BATCH = st.tuples(st.sampled_from([1, 1, 1, 2]), st.sampled_from([4, 4, 4, 3]))  # loader, samples


@given(st.lists(st.tuples(st.lists(BATCH, max_size=2), st.sampled_from([False] * 9 + [True])), max_size=60))
def test_steps_that_are_deferred_get_the_labels_that_they_would_get_one_by_one(steps):
    closed, deferred, labels = StepFacts(), StepFacts(), []
    for number, (batches, restarts) in enumerate(steps * 3):
        for facts in (closed, deferred):
            if restarts or not number:
                facts.epoch(1)
            for loader, samples in batches:
                facts.batch(loader, 10 * number, samples, None)
        label = closed.close("train", 10 * number + 5)
        if labels and labels[-1][0] == "train" and deferred.alike:
            assert labels[-1] == label
            deferred.alike = deferred.steady
            deferred.passed(1)
        else:
            assert deferred.close("train", 10 * number + 5) == label
        labels.append(label)
