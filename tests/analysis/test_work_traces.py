"""Real traces: how much of the device's time has known work, and that no figure beats the chip."""

from __future__ import annotations

from functools import cache

import polars as pl
import pytest

from fathom.analysis.work.families import kernel_works
from tests.support.examined import on_traces
from tests.support.paths import DATA, TRACES
from tests.support.work_frames import Tables, join, read
from tests.support.works import family_work, kernel_ops

H200 = DATA / "h200"
PEAKS = {  # datasheets: dense FLOP/s by dtype, bytes/s of HBM, bytes of L2
    "h100": ({"bf16": 989e12, "fp32": 67e12}, 3.35e12, 50e6),
    "b200": ({"bf16": 2250e12, "fp32": 80e12}, 8.0e12, 126e6),
    "h200": ({"fp32": 67e12}, 4.8e12, 50e6),
}
FILES = {
    "h100-qwen-0.5b": (TRACES / "h100-qwen-0.5b.json.gz", 0.999),
    "h100-owlv2": (TRACES / "h100-owlv2.json.gz", 0.999),
    "b200-eager": (
        TRACES / "b200-eager.json.gz",
        0.24,
    ),  # three quarters are an inference server's own kernels
    "h200-compiled": (H200 / "compiled.json.gz", 0.94),
}


@cache
def trace(name: str) -> Tables:
    """A trace without device work that was launched before it begins."""
    path = FILES[name][0]
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    ops, launches, kernels = read(path)
    return ops, launches, kernels.join(launches.select("correlation"), on="correlation", how="semi")


def full_window(kernels: pl.DataFrame) -> pl.DataFrame:
    start, end = kernels["start_ns"].min(), kernels["end_ns"].max()
    return pl.DataFrame({"start_ns": [start], "end_ns": [end], "used": [True]})


@pytest.mark.parametrize("name", on_traces(FILES))
def test_share_of_device_time_whose_work_is_known(name: str) -> None:
    tables = trace(name)
    works = kernel_works(*tables)
    known = works.filter(pl.col("bytes").is_not_null())["time"].sum() / works["time"].sum()
    assert known >= FILES[name][1]
    reasons = works.filter(pl.col("bytes").is_null())["abstained"]
    assert reasons.null_count() == 0


@pytest.mark.parametrize("name", on_traces(FILES))
def test_no_family_beats_the_chip(name: str) -> None:
    ops, launches, kernels = trace(name)
    works = pl.concat([kernels.select("family"), kernel_works(ops, launches, kernels)], how="horizontal")
    flops, bandwidth, cache = PEAKS[name.split("-")[0]]
    families = (
        works.filter(pl.col("kind") == "compute")
        .group_by("family", "work_dtype")
        .agg(pl.col("flops", "bytes", "time").sum(), largest=pl.col("bytes").max())
        .with_columns(
            rate=pl.col("flops") / pl.col("time") * 1e9, speed=pl.col("bytes") / pl.col("time") * 1e9
        )
    )
    for row in families.rows(named=True):
        assert row["rate"] <= flops.get(row["work_dtype"], max(flops.values()))
        if (row["largest"] or 0) > cache:  # cached data may move faster than HBM
            assert row["speed"] <= bandwidth


@pytest.mark.parametrize("name", on_traces(FILES))
def test_families_sum_to_their_kernels(name: str) -> None:
    ops, launches, kernels = trace(name)
    result = family_work(ops, launches, kernels, full_window(kernels))
    family = kernels.select(family=pl.coalesce("family", "direction", "name"))
    works = pl.concat([family, kernel_works(ops, launches, kernels)], how="horizontal")
    known = works.filter(pl.col("bytes").is_null().any().over("family").not_())
    assert result["bytes"].sum() == pytest.approx(known["bytes"].sum())
    assert result["bytes"].is_null().sum() == works.filter(pl.col("bytes").is_null())["family"].n_unique()


def test_a_vision_model_has_the_flops_of_its_layers() -> None:
    """OWLv2 large on five images: 24 layers of width 1024 over 72 x 72 + 1 patches, a small text tower."""
    result = kernel_works(*trace("h100-owlv2"))
    layer = 2 * 5185 * 1024 * (4 * 1024 + 2 * 4096) + 4 * 5185 * 5185 * 1024
    vision = 5 * 24 * layer
    assert vision < result["flops"].sum() < 1.05 * vision


def test_a_language_model_has_two_flops_a_weight_and_token() -> None:
    """Qwen1.5-0.5B: 24 layers of width 1024, feed-forward 2816; 16 sequences of 559 tokens."""
    tokens = 16 * 559
    products = 2 * tokens * 24 * (4 * 1024 * 1024 + 3 * 1024 * 2816)
    attention = 24 * 16 * 4 * 559 * 559 * 1024 / 2
    total = kernel_works(*trace("h100-qwen-0.5b"))["flops"].sum()
    assert total == pytest.approx(products + attention, rel=0.01)


def replayed() -> Tables:
    capture = read(H200 / "capture.json.gz", phase="attribution", burst=1)
    return join(read(H200 / "graph.json.gz"), capture)


def test_a_replayed_graph_gets_the_ops_of_its_capture() -> None:
    ops, launches, kernels = replayed()
    joined = kernel_ops(ops, launches, kernels)
    names = ops.select(owner="id", name="name", phase="phase").filter(pl.col("phase") == "attribution")
    table = joined.join(names, on="owner", how="left").sort("kernel")
    table = pl.concat([table.select(op="name"), kernels.select("name", "phase", "kind")], how="horizontal")
    graph = table.filter((pl.col("phase") == "timeline") & (pl.col("kind") == "compute"))
    expected = {
        "gemm": ("aten::addmm", "aten::mm"),
        "splitK": ("aten::addmm", "aten::mm"),
        "GeluCUDAKernelImpl": ("aten::gelu",),
        "GeluBackward": ("aten::gelu_backward",),
        "FusedAdam": ("aten::_fused_adamw_",),
        "pow_tensor_scalar": ("aten::pow",),
        "MeanOps": ("aten::mean",),
        "ZeroFunctor": ("aten::_foreach_zero_",),
    }
    for part, owners in expected.items():
        result = graph.filter(pl.col("name").str.contains(part, literal=True))["op"].to_list()
        assert result and set(result) <= set(owners)


def test_a_replayed_training_step_has_the_flops_of_its_layers() -> None:
    """Two layers of 512 x 512 over 64 rows: two products forward, three backward (none for the input)."""
    ops, launches, kernels = replayed()
    timeline = kernels.filter(pl.col("phase") == "timeline")
    result = family_work(ops, launches, timeline, full_window(timeline))
    assert result["flops"].null_count() == 0
    assert result["bytes"].null_count() == 0
    products = result.filter(pl.col("family").str.contains("gemm|splitK"))
    assert products["flops"].sum() == pytest.approx(4 * 5 * 2 * 64 * 512 * 512)


def test_a_replay_whose_capture_was_not_recorded_says_so() -> None:
    ops, launches, kernels = read(H200 / "graph.json.gz")
    result = family_work(ops, launches, kernels, full_window(kernels)).filter(pl.col("bytes").is_null())
    assert result.height
    assert set(result["why"]) == {"graph replayed; its capture was not recorded"}


def test_a_burst_without_shapes_takes_them_from_one_with_shapes() -> None:
    """The same two compiled steps: once as recorded, once stripped of shapes and joined by position."""
    ops, launches, kernels = read(H200 / "compiled.json.gz")
    shaped = read(H200 / "compiled.json.gz", phase="attribution", burst=1, shift=10**12)
    bare = ops.with_columns(shapes=pl.lit(None, dtype=pl.String))
    windows = full_window(kernels)
    direct = family_work(ops, launches, kernels, windows).drop("why")
    by_position = family_work(*join((bare, launches, kernels), shaped), windows).drop("why")
    assert by_position.equals(direct)
