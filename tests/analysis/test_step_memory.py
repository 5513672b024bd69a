"""Memory over a step by category: lives of blocks, on events written by hand."""

from __future__ import annotations

import polars as pl

from fathom.analysis import at_peak, by_category
from fathom.sounding.schema import conform

DEVICE, MIB = 0, 2**20


def events(*rows: tuple[int, str, int, int], **more) -> pl.DataFrame:
    names = ("time_ns", "event", "address", "size")
    known = [
        {**dict(zip(names, row, strict=True)), "device": DEVICE, "phase": "attribution", **more}
        for row in rows
    ]
    return conform("memory", pl.DataFrame(known))


def tensors(moment: str, time: int, **tensors: tuple[int, int]) -> pl.DataFrame:
    rows = [
        {"time_ns": time, "event": moment, "address": address, "size": size, "device": DEVICE,
         "category": name.replace("_", " "), "phase": "transition"}
        for name, (address, size) in tensors.items()
    ]  # fmt: skip
    return conform("memory", pl.DataFrame(rows))


def ops(backward: int | None = 50) -> pl.DataFrame:
    names = [(0, "aten::linear"), (backward, "autograd::engine::evaluate_function: AddmmBackward0")]
    rows = [
        {"id": place, "kind": "op", "thread": 1, "name": name, "start_ns": at, "end_ns": at + 10,
         "phase": "attribution", "burst": 4}
        for place, (at, name) in enumerate(names) if at is not None
    ]  # fmt: skip
    return conform("ops", pl.DataFrame(rows))


def test_a_training_step():
    """Parameters stay, the gradient is made anew, an activation waits for the backward pass."""
    memory = pl.concat(
        [
            tensors(
                "held", 1, parameter=(100, 4 * MIB), gradient=(200, 4 * MIB), optimizer_state=(300, 8 * MIB)
            ),
            events(
                (5, "free", 200, 4 * MIB),
                (10, "alloc", 400, 2 * MIB),  # activation
                (20, "alloc", 500, MIB),  # workspace
                (22, "free", 500, MIB),
                (55, "alloc", 600, 4 * MIB),  # gradient
                (60, "free", 400, 2 * MIB),
                (70, "alloc", 700, 3 * MIB),  # the optimizer's workspace
                (72, "free", 700, 3 * MIB),
                (80, "alloc", 800, 7),  # the loss
            ),
            tensors(
                "held after",
                90,
                parameter=(100, 4 * MIB),
                gradient=(600, 4 * MIB),
                optimizer_state=(300, 8 * MIB),
            ),
        ]
    )
    over = by_category(memory, ops())
    assert over is not None
    columns = over.select("activations", "temporaries", "gradients", "parameters", "optimizer state")
    assert over["ns"].to_list() == [0, 1, 6, 16, 18, 51, 56, 66, 68, 76]
    assert [[size // MIB for size in row] for row in columns.iter_rows()] == [
        [0, 0, 4, 4, 8],
        [0, 0, 0, 4, 8],
        [2, 0, 0, 4, 8],
        [2, 1, 0, 4, 8],
        [2, 0, 0, 4, 8],
        [2, 0, 4, 4, 8],
        [0, 0, 4, 4, 8],
        [0, 3, 4, 4, 8],
        [0, 0, 4, 4, 8],
        [0, 0, 4, 4, 8],
    ]
    assert over["other"].to_list()[-1] == 7
    peak = at_peak(over)
    assert (peak.temporaries_bytes, peak.activations_bytes, peak.other_bytes) == (3 * MIB, None, None)


def test_of_several_recorded_steps_the_last_is_shown():
    """Each step makes an activation and a gradient; the next one frees the gradient at its begin."""
    made = []
    for begin, gradient, activation in ((0, 600, 400), (100, 610, 410), (200, 620, 420)):
        made += [(begin + 5, "free", gradient - 10, 4 * MIB)] if begin else []
        made += [
            (begin + 10, "alloc", activation, 2 * MIB),
            (begin + 55, "alloc", gradient, 4 * MIB),
            (begin + 60, "free", activation, 2 * MIB),
        ]
    memory = pl.concat(
        [
            tensors("held", 1, parameter=(100, 4 * MIB)),
            events(*made),
            tensors("held after", 290, parameter=(100, 4 * MIB), gradient=(620, 4 * MIB)),
        ]
    )
    begins = [ops(50).with_columns(pl.col("start_ns") + at) for at in (0, 100, 200)]
    marks = pl.DataFrame({"mark_ns": [0, 100, 200], "burst": 4}, schema_overrides={"burst": pl.Int32})
    over = by_category(memory, pl.concat(begins), marks)
    assert over is not None and over["ns"].to_list() == [0, 5, 10, 55, 60]
    columns = over.select("activations", "temporaries", "gradients").rows()
    assert [[size // MIB for size in row] for row in columns] == [
        [0, 0, 4],
        [0, 0, 0],
        [2, 0, 0],
        [2, 0, 4],
        [0, 0, 4],
    ]


def test_memory_from_before_the_step_is_other():
    """The device's total is known; blocks that no optimizer holds are the rest of it."""
    memory = events((10, "alloc", 400, MIB), (20, "free", 900, 2 * MIB), allocated=6 * MIB)
    over = by_category(memory, ops(backward=None))
    assert over is not None and over["other"].to_list() == [5 * MIB, 6 * MIB, 4 * MIB]


def test_frees_that_the_host_does_not_report():
    """An address that is allocated again has been freed; a gradient that is gone was freed before."""
    memory = pl.concat(
        [
            tensors("held", 1, gradient=(200, MIB), parameter=(100, MIB), optimizer_state=(300, MIB)),
            events((10, "alloc", 300, 2 * MIB)),
            tensors("held after", 90, parameter=(100, MIB)),
        ]
    )
    over = by_category(memory, ops())
    assert over is not None
    assert over["gradients"].to_list() == [0, 0] and over["parameters"].to_list() == [MIB, MIB]
    assert over["optimizer state"].to_list() == [MIB, 0] and over["other"].to_list() == [0, 2 * MIB]


def test_a_block_allocated_anew_was_freed_though_nothing_recorded_that():
    rows = events((5, "alloc", 100, MIB), (10, "alloc", 100, 2 * MIB), (60, "free", 100, 2 * MIB))
    over = by_category(rows, ops())
    assert over is not None
    assert over.select("temporaries", "activations").rows() == [(0, 0), (MIB, 0), (0, 2 * MIB), (0, 0)]


def test_no_events_give_no_figure():
    assert by_category(tensors("held", 1, parameter=(100, MIB)), ops()) is None


def test_each_backward_pass_of_accumulated_gradients_ends_activations():
    """Each micro-step frees its activation before the next one makes another at the same address."""
    names = ["aten::linear", "autograd::engine::evaluate_function: AddmmBackward0", "aten::mm"] * 3
    rows = [
        {"id": k, "kind": "op", "thread": 1, "name": name, "start_ns": 20 * k,
         "end_ns": 20 * k + (30 if "autograd" in name else 5), "phase": "attribution", "burst": 4}
        for k, name in enumerate(names)
    ]  # fmt: skip
    each = [
        row
        for zero in (0, 60, 120)
        for row in [
            (zero + 2, "alloc", 400, 2 * MIB),  # needed by the backward pass, which begins 20 ns later
            (zero + 41, "alloc", 500, MIB),  # made and freed by it
            (zero + 43, "free", 500, MIB),
            (zero + 45, "free", 400, 2 * MIB),
        ]
    ]
    over = by_category(events(*each), conform("ops", pl.DataFrame(rows)))
    assert over is not None
    peaks = over.select(pl.col("activations", "temporaries").max()).row(0)
    assert [size // MIB for size in peaks] == [2, 1]
