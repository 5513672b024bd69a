"""The graph against brute force, the selectors, and recordings that hold little or nonsense."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import fathom
from fathom.analysis.replay import Replay, parse
from fathom.analysis.replay.graph import EdgeKind, Edges, Graph
from fathom.analysis.results import Abstained
from fathom.cli.main import app
from fathom.errors import BadInputError
from tests.support.examined import imported, on_traces
from tests.support.paths import EXAMPLES, TRACES
from tests.support.simulator import US, Do, Machine, simulate
from tests.support.timelines import OTHER, Timeline, store_of

REAL = sorted(path.name.removesuffix(".json.gz") for path in TRACES.glob("*.json.gz"))
EXAMPLE = EXAMPLES / "train_gpt-h200.fathom.zip"
SMALL = [Do("launch", 5 * US, 40 * US, name) for name in ("gemm", "softmax", "gemm")]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 7), st.integers(0, 9)), max_size=12))
def test_every_instant_comes_at_the_end_of_its_longest_path(drawn: list[tuple[int, int, int]]) -> None:
    edges = [edge for edge in drawn if edge[0] < edge[1]]
    table = Edges()
    for source, target, ns in edges:
        table.add(EdgeKind.FIXED, source, target, float(ns))
    recorded = np.arange(8)
    graph, _ = Graph.of(recorded, np.ones(8, bool), table.table())
    result = graph.times(np.array(graph.edges.kept, float))
    roots = {node: recorded[node] for node in range(8) if not any(edge[1] == node for edge in edges)}
    for node in range(8):
        assert result[node] == max(_starting(node, edges, roots))


def _starting(node: int, edges: list[tuple[int, int, int]], roots: dict[int, int]) -> list[int]:
    if node in roots:
        return [int(roots[node])]
    return [
        at + ns for source, target, ns in edges if target == node for at in _starting(source, edges, roots)
    ]


def test_edges_back_in_time_are_left_out() -> None:
    table = Edges()
    table.add(EdgeKind.FIXED, np.array([0, 1]), np.array([1, 0]), 5.0)
    graph, kept = Graph.of(np.array([0, 10]), np.ones(2, bool), table.table())
    assert graph.against == 1
    assert kept.tolist() == [0]
    assert graph.times(np.array([5.0])).tolist() == [0.0, 5.0]


@pytest.mark.parametrize(
    ("text", "selector", "pattern", "factor", "ns"),
    [
        ("family:softmax=0.5", "family", "softmax", 0.5, None),
        ("family:a=b*=0", "family", "a=b*", 0.0, None),
        ("op:aten::linear=2", "op", "aten::linear", 2.0, None),
        ("entry:idle: python=0", "python", "", 0.0, None),
        ("entry:compute=.5", "all-kernels", "", 0.5, None),
        ("launch=4us", "launch", "", None, 4000.0),
        ("copy:HtoD=1.5ms", "copy", "HtoD", None, 1.5e6),
        ("sync=0", "sync", "", 0.0, None),
        ("recomputed=0", "recomputed", "", 0.0, None),
    ],
)
def test_changes_are_read(
    text: str, selector: str, pattern: str, factor: float | None, ns: float | None
) -> None:
    change = parse(text)
    assert (change.selector, change.pattern, change.factor, change.ns) == (selector, pattern, factor, ns)


@pytest.mark.parametrize(
    "text",
    [
        *("", "=", "=0", "input", "input=", "input=-1", "input=nan", "input=1e999", "input=3 days"),
        *("input=1.2.3", "foo=1", "family=0.5", "family:=0.5", "launch:x=1", "sync=0.5", "python=3us"),
        *("entry:idle: x=0", "family:a=1e308", "family:a=1e7", "launch=1e5s"),
    ],
)
def test_bad_changes_are_one_sentence(text: str) -> None:
    with pytest.raises(BadInputError) as raised:
        parse(text)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("SOFT", "softmax_warp", True),
        ("a*c", "xabcx", True),
        ("[", "f[0]", True),
        ("[ab]", "a", False),
        ("?", "a", False),
    ],
)
def test_patterns_are_found_anywhere(pattern: str, name: str, matches: bool) -> None:
    assert parse(f"family:{pattern}=0").matches(name) is matches


def test_unknown_names_tell_the_largest(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", simulate(SMALL, Machine())))
    with pytest.raises(BadInputError, match="No kernel family matches 'conv'; the largest are gemm, softmax"):
        replay.predict([parse("family:conv=0")])
    with pytest.raises(BadInputError, match="No op matches"):
        replay.predict([parse("op:conv=0")])


def test_a_family_that_is_an_op_is_named_as_one(tmp_path: Path) -> None:
    """On a CPU, ops are no kernel families."""
    timeline = Timeline()
    timeline.steps(0, 1_000_000, 2_000_000)
    for start in (0, 1_000_000):
        timeline.op("aten::copy_", start + 100_000, start + 400_000)
    replay = Replay(store_of(tmp_path / "s.fathom", timeline))
    with pytest.raises(
        BadInputError, match=r"No kernel family was recorded. An op matches; write 'op:aten::copy_=0'\."
    ):
        replay.predict([parse("family:aten::copy_=0")])


def test_a_prediction_holds_its_parts(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", simulate(SMALL, Machine())))
    result = replay.predict([parse("all-kernels=0.5"), parse("gc=0")])
    assert result.predicted_ms == pytest.approx(result.recorded_ms - result.gain_ms)
    assert sum(row.before_ms for row in result.moved) == pytest.approx(result.recorded_ms, abs=1e-5)
    assert sum(row.after_ms for row in result.moved) == pytest.approx(result.predicted_ms, abs=1e-5)
    low, high = result.predicted_ci_ms
    assert low <= result.predicted_ms <= high
    assert result.error < 0.01
    assert "the recording has nothing that gc=0 applies to" in result.notes


def test_durations_can_be_set(tmp_path: Path) -> None:
    replay = Replay(
        store_of(tmp_path / "s.fathom", simulate([Do("launch", 2 * US, 90 * US)] * 10, Machine()))
    )
    assert replay.step_ms([parse("family:gemm=50us")]) == pytest.approx(10 * 0.051, rel=0.02)


def nothing() -> Timeline:
    return Timeline()


def marks_only() -> Timeline:
    made = Timeline()
    made.steps(0, 1000, 2000)
    return made


def processor() -> Timeline:
    made = Timeline()
    made.steps(*range(0, 5000, 1000))
    for k in range(4):
        made.op("aten::mm", 1000 * k + 100, 1000 * k + 900)
    return made


def work_without_launches() -> Timeline:
    made = Timeline()
    made.steps(*range(0, 5000, 1000))
    for k in range(4):
        made.kernel(1000 * k + 100, 1000 * k + 900, None)
    return made


def clocks_that_disagree() -> Timeline:
    """Work before its launch, on one stream at once, a call inside another, and after the end of time."""
    made = Timeline()
    made.steps(*range(0, 5000, 1000))
    for k in range(4):
        made.kernel(1000 * k + 100, 1000 * k + 900, 1000 * k + 950)
        made.kernel(1000 * k + 200, 1000 * k + 800, 1000 * k + 10)
        made.call("cudaDeviceSynchronize", 1000 * k + 300, 1000 * k + 5000)
        made.kernel(1000 * k + 700, 1000 * k + 700, 1000 * k + 20, thread=5)
    return made


@pytest.mark.parametrize("made", [marks_only, processor, work_without_launches])
def test_what_was_recorded_is_replayed_whatever_it_is(made, tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", made()))
    assert replay.device is not None
    recorded = replay.device.windows
    assert replay._steps().tolist() == ((recorded.ends - recorded.starts)[recorded.used] / 1e6).tolist()
    for change in ("all-kernels=0", "python=0", "sync=0", "all-kernels=3", "input=0", "dispatching=0"):
        result = replay.predict([parse(change)])
        assert result.abstained or result.predicted_ms >= 0


def test_records_that_contradict_each_other_are_abstained_from(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", clocks_that_disagree()))
    for change in ("all-kernels=0", "python=0", "sync=0", "all-kernels=3", "input=0", "dispatching=0"):
        result = replay.predict([parse(change)])
        assert result.predicted_ms is None
        assert "differs by" in result.abstained[0].why


def test_nothing_recorded_is_abstained(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", nothing()))
    assert isinstance(replay.gain([parse("python=0")]), Abstained)
    result = replay.predict([parse("family:x=0")])
    assert result.predicted_ms is None
    assert result.abstained


def test_a_processor_gains_what_its_ops_do(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", processor()))
    assert replay.gain([parse("op:mm=0.5")]).ms == pytest.approx(400e-6)


def checkpointed(steps: int) -> Timeline:
    """Steps of 100 us that the host bounds: 30 forward, then a node that runs 40 again and 20 itself."""
    made = Timeline()
    made.steps(*range(0, (steps + 1) * 100 * US, 100 * US))
    for at in range(0, steps * 100 * US, 100 * US):
        node = made.op("autograd::engine::evaluate_function: AddmmBackward0", at + 32 * US, at + 97 * US)
        function = made.op("AddmmBackward0", at + 35 * US, at + 95 * US, parent=node)
        for name, begin, end, parent in (
            ("aten::linear", 5, 30, None),
            ("aten::gelu", 40, 45, function),
            ("aten::linear", 50, 65, function),
            ("aten::gelu", 67, 72, function),
            ("aten::mm", 75, 94, function),
        ):
            made.op(name, at + begin * US, at + end * US, parent=parent)
            launched = at + (end - 2) * US
            made.kernel(launched + 3 * US, launched + 5 * US, launched)
        batch = at + 60 * US  # that a loader's thread copies meanwhile
        made.kernel(batch + 1, batch + US, batch, kind="copy", stream=9, thread=OTHER)
    return made


def test_without_what_is_repeated_host_and_device_are_spared(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", checkpointed(5)))
    result = replay.predict([parse("recomputed=0")])
    assert result.gain_ms == pytest.approx(40e-3)  # from the function's begin to its own product
    (row,) = (row for row in result.moved if row.entry == "compute")
    assert row.after_ms == pytest.approx(row.before_ms * 2 / 5, rel=1e-3)
    (row,) = (row for row in result.moved if row.entry == "copy")
    assert row.after_ms == pytest.approx(row.before_ms) and row.before_ms > 0
    half = replay.predict([parse("recomputed=0.5")])
    assert half.gain_ms == pytest.approx(20e-3)


def test_without_recomputation_a_note_says_so(tmp_path: Path) -> None:
    result = Replay(store_of(tmp_path / "s.fathom", processor())).predict([parse("recomputed=0")])
    assert result.gain_ms == 0 and "the recording has nothing that recomputed=0 applies to" in result.notes


def test_nothing_hides_a_processor_from_its_own_pace(tmp_path: Path) -> None:
    """Batches come at the workers' pace, which does not make ops quicker than recorded."""
    made, ms = Timeline(), 10**6
    made.steps(*range(0, 61_000 * ms, 1000 * ms))
    for k in range(60):
        made.wait("input", 1000 * k * ms, (1000 * k + 150) * ms)
        made.op("aten::mm", (1000 * k + 150) * ms, 1000 * (k + 1) * ms)
    made.phase = "clean"
    made.steps(*range(70_000 * ms, 80_000 * ms, 900 * ms))
    result = Replay(store_of(tmp_path / "s.fathom", made)).predict([parse("input=0")])
    assert result.clean_gain.ms == pytest.approx(150)
    assert not result.notes


@pytest.mark.parametrize(("clean_ms", "prepare", "add"), [(15, 10, 5), (8, 4, 4)])
def test_recording_does_not_slow_down_what_it_records_nothing_of(
    clean_ms: int, prepare: float, add: float, tmp_path: Path
) -> None:
    """An op prepares for 10 ms, then 100 launch: what clean steps are shorter by are those's.

    Unless clean steps are shorter than the op itself: then they have less of both.
    """
    made, ms, us = Timeline(), 10**6, 10**3
    made.steps(*range(0, 420 * ms, 20 * ms))
    for k in range(20):
        start = 20 * k * ms
        made.op("aten::prepare", start, start + 10 * ms)
        for begin in range(start + 10 * ms, start + 20 * ms, 100 * us):
            made.op("aten::add", begin, begin + 98 * us)
            made.kernel(begin + 96 * us, begin + 97 * us, begin + 90 * us, name="add")
    made.phase = "clean"
    made.steps(*range(1000 * ms, 1600 * ms, clean_ms * ms))
    replay = Replay(store_of(tmp_path / "s.fathom", made))
    assert replay.gain([parse("op:aten::prepare=0")]).ms == pytest.approx(prepare, rel=0.05)
    assert replay.gain([parse("op:aten::add=0")]).ms == pytest.approx(add, rel=0.1)
    assert any(
        "family:NAME changes their kernels" in note for note in replay.predict([parse("op:add=0")]).notes
    )
    assert not any("family:NAME" in note for note in replay.predict([parse("python=0")]).notes)


@pytest.mark.parametrize("workers", [False, True])
def test_a_loader_without_workers_does_not_work_meanwhile(workers: bool, tmp_path: Path) -> None:
    """Time saved elsewhere is not spent waiting for batches that the program makes itself."""
    made, ms = Timeline(), 10**6
    made.steps(*range(0, 610 * ms, 10 * ms))
    iterator = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    for k in range(60):
        start = 10 * k * ms
        made.wait("input", start, start + 2 * ms)
        made.op(f"enumerate(DataLoader)#{iterator}.__next__", start, start + 2 * ms, kind="annotation")
        made.op("aten::mm", start + 2 * ms, start + 6 * ms)
        made.wait("checkpoint", start + 6 * ms, start + 10 * ms)
    replay = Replay(store_of(tmp_path / "s.fathom", made))
    assert replay.gain([parse("checkpoint=0")]).ms == pytest.approx(0 if workers else 4, abs=0.1)
    assert replay.gain([parse("input=0")]).ms == pytest.approx(2, abs=0.1)


def peers() -> tuple[Timeline, Timeline]:
    """Two ranks reduce in every step; the second is 300 ns late for it."""
    ranks = Timeline(rank=0), Timeline(rank=1)
    for made, late in zip(ranks, (0, 300), strict=True):
        made.steps(*range(0, 5000, 1000))
        for k in range(4):
            made.kernel(1000 * k + 100, 1000 * k + 200 + late, 1000 * k + 20, name="gemm")
            begin = 1000 * k + 210 + late
            made.kernel(
                begin, 1000 * k + 610, 1000 * k + 30, name="ncclDevKernel_AllReduce", kind="collective"
            )
            made.kernel(1000 * k + 900, 1000 * k + 990, 1000 * k + 890, name="tail")
            made.call("cudaDeviceSynchronize", 1000 * k + 900, 1000 * k + 995)
    return ranks


def test_collectives_wait_for_the_latest_rank(tmp_path: Path) -> None:
    replay = Replay(store_of(tmp_path / "s.fathom", *peers()))
    times = replay.model.times([parse("family:gemm=0")])
    kernels = times.timeline(0).kernels.filter(kind="collective")
    assert kernels.height == 4
    # The late rank's 400 ns are gone for both, and the bytes take their 100 ns.
    assert (kernels["end_ns"] - kernels["arrived_ns"]).to_list() == [100] * 4
    assert (
        replay.model.times().timeline(0).kernels["end_ns"].to_list()
        == replay.model.timelines[0].kernels["end_ns"].to_list()
    )


def test_a_wait_for_unknown_work_makes_no_other_wait_longer(tmp_path: Path) -> None:
    """The work that the first call waits for was launched before the recording began."""
    made, ms = Timeline(), 1_000_000
    made.steps(*range(0, 50 * ms, 10 * ms))
    made.call("cudaStreamSynchronize", 100, 9 * ms)
    for k in range(1, 4):
        begin = 10 * k * ms
        made.kernel(begin + 50_000, begin + 8 * ms, begin + 20_000, name="gemm")
        made.call("cudaStreamSynchronize", begin + 60_000, begin + 8 * ms + 5_000)
    replay = Replay(store_of(tmp_path / "s.fathom", made))
    gain = replay.gain([parse("family:gemm=0.5")])
    assert gain.ms == pytest.approx(
        (8 - 0.05) / 2 * 3 / 4, abs=0.1
    )  # half of the kernel, in three of four steps


@pytest.mark.skipif(not EXAMPLE.exists(), reason="examples are not part of an installation")
def test_the_command_says_what_would_be(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["what-if", str(EXAMPLE), "all-kernels=0.5"])
    assert run.exit_code == 0
    for word in ("clean step", "step, as profiled", "where the time moves", "compute", "idle: dispatching"):
        assert word in run.output
    assert max(len(line) for line in run.output.splitlines()) <= 120
    as_json = CliRunner().invoke(app, ["what-if", str(EXAMPLE), "all-kernels=0.5", "--json"])
    assert '"predicted_ms":' in as_json.output
    for bad in (["foo=1"], ["input=0", "--rank", "7"]):
        assert CliRunner().invoke(app, ["what-if", str(EXAMPLE), *bad]).exit_code == 2


@pytest.mark.skipif(not EXAMPLE.exists(), reason="examples are not part of an installation")
def test_the_kept_sounding_is_replayed() -> None:
    sounding = fathom.open(EXAMPLE)
    result = sounding.what_if("family:layer_norm=1")
    assert result.error < 0.02
    assert result.gain_ms == pytest.approx(0.0, abs=1e-9)
    assert result.recorded_ms == pytest.approx(sounding.step.timeline_ms, rel=1e-9)
    assert result.clean_ms == sounding.step.clean_ms
    # Its kernels leave hardly any idle time, so the host's Python is hidden, and they are not.
    assert 0 <= sounding.what_if("python=0").gain_ms < 0.01 * result.recorded_ms
    assert sounding.what_if("all-kernels=0.9").gain_ms > 0.5


@pytest.mark.skipif(not REAL, reason="the shared traces are not here")
@pytest.mark.parametrize("name", on_traces(REAL))
def test_real_traces_are_replayed_as_they_were(name: str) -> None:
    replay = Replay(imported(name))
    exact = replay.model.times().timeline(replay.device.rank).kernels
    recorded = replay.model.timelines[replay.device.rank].kernels
    assert exact["start_ns"].to_list() == recorded["start_ns"].to_list()
    assert exact["end_ns"].to_list() == recorded["end_ns"].to_list()
    assert replay.error < 0.02
    assert replay.step_ms([parse("all-kernels=1")]) == pytest.approx(replay.step_ms())


def test_a_name_in_quotes_is_the_whole_name() -> None:
    part, total = parse("op:cudnn_rnn=0.5"), parse('op:"aten::_cudnn_rnn"=0.5')
    names = ["aten::_cudnn_rnn", "aten::_cudnn_rnn_backward"]
    assert [part.matches(name) for name in names] == [True, True]
    assert [total.matches(name) for name in names] == [True, False]
    assert parse(str(total)) == total
