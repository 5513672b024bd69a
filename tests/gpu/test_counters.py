"""Hardware counters on a GPU that lets them be sampled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fathom.recorder import examine_host
from fathom.sounding import Store, open_store
from tests.gpu.conftest import PROGRAMS

pl = pytest.importorskip("polars", reason="samples are read with polars")

FATHOM = [sys.executable, "-m", "fathom"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the machine of these tests is remembered, with its counters qualified."""
    if why := examine_host(sys.executable).depths["counters"]:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("home")
    qualify = [*FATHOM, "machine", "measure", "--only", "counters", "--json"]
    done = subprocess.run(
        qualify, env={**os.environ, "FATHOM_HOME": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (folder / "found.json").write_text(done.stdout)
    return folder


def recorded(home: Path, folder: Path, program: str, *options: str) -> Store:
    output = folder / "recorded.fathom"
    command = [*FATHOM, "run", "--quiet", "-o", str(output), *options, "--", sys.executable]
    environment = {**os.environ, "FATHOM_HOME": str(home), "FATHOM_MEASURE": "0"}
    subprocess.run([*command, str(PROGRAMS / program)], check=True, env=environment)
    return open_store(output)


def test_at_least_fifty_counters_stream_and_every_refusal_has_its_reason(home: Path) -> None:
    document: dict[str, Any] = json.loads((home / "found.json").read_text())
    assert len({name for group in document["groups"] for name in group}) >= 50
    assert all(document["refused"].values()) and document["trigger"] in ("time", "clock")
    anchors = {group[0] for group in document["groups"]}
    assert len(anchors) == 1 and "sm__cycles_active" in anchors.pop()


@pytest.mark.parametrize("program", ["train.py", "graph.py", "streams.py"])
def test_samples_lie_where_the_kernels_of_their_burst_are(home: Path, tmp_path: Path, program: str) -> None:
    store = recorded(home, tmp_path, program)
    samples = store.table("samples").collect()
    assert len(samples) > 500, store.manifest.abstained
    assert not [problem for problem in store.manifest.problems if problem.what == "samples-lost"]
    kernels = store.table("kernels").filter(phase="counters").collect()
    samples = samples.filter(pl.col("burst") < samples["burst"].max())  # the program ends within the last one
    spans = samples.group_by("burst").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    for burst, start_ns, end_ns in spans.iter_rows():
        work = kernels.filter(burst=burst)
        covered = work.filter(pl.col("start_ns") > start_ns, pl.col("end_ns") < end_ns)
        assert len(covered) > 0.9 * len(work), f"burst {burst} lies elsewhere"


@pytest.mark.parametrize("program", ["train.py", "graph.py", "streams.py"])
def test_what_ran_in_bursts_is_told_as_the_profiler_tells_it(
    home: Path, tmp_path: Path, program: str
) -> None:
    """CUPTI's own records against Kineto's of the same program."""
    kernels = recorded(home, tmp_path, program).table("kernels").collect()
    about = ["kind", "name", "grid", "block", "registers", "shared_bytes", "stream", "bytes"]
    by_name = {
        phase: set(kernels.filter(phase=phase).select(about).iter_rows())
        for phase in ("timeline", "counters")
    }
    assert by_name["counters"] and by_name["counters"] == by_name["timeline"]


@pytest.mark.parametrize("given", [None, "0"])
def test_stamps_are_the_host_s_unless_kineto_keeps_cupti(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    if given is not None:
        monkeypatch.setenv("TEARDOWN_CUPTI", given)
    store = recorded(home, tmp_path, "train.py")
    clocks = {burst["clock"] for burst in store.manifest.ranks[0].facts["sampling"]}
    assert clocks == {"ns" if given is None else "ticks"}


def test_the_anchor_is_active_while_kernels_run(home: Path, tmp_path: Path) -> None:
    store = recorded(home, tmp_path, "train.py")
    samples = store.table("samples").collect()
    groups = store.manifest.ranks[0].facts["counter_groups"]
    assert all("sm__cycles_active" in group[0] for group in groups)
    active = samples["values"].list.first()
    assert active.is_finite().all() and active.min() >= 0 and active.max() <= 101  # type: ignore[operator]
    assert active.max() > 1  # type: ignore[operator]


def test_a_depth_without_counters_samples_nothing(home: Path, tmp_path: Path) -> None:
    store = recorded(home, tmp_path, "train.py", "--depth", "timeline")
    assert store.table("samples").collect().is_empty()
    assert not [absence for absence in store.manifest.abstained if absence["what"] == "counters"]
