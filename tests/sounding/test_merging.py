"""Soundings of a job's nodes become one, and those of different jobs do not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.errors import BadInputError
from fathom.sounding import TABLES, Store, Writer, import_traces, merge, numbers, open_store
from fathom.sounding.manifest import Manifest, Phase, Problem, Rank
from tests.support.paths import SHARED

DLRM = sorted((SHARED / "traces" / "dlrm").glob("*.json.gz"))
SECOND = 1_000_000_000


def node(folder: Path, *ranks: int, begun_s: int = 100, world: int = 4, **facts: Any) -> Store:
    """A sounding with steps of these ranks; each is named after its rank."""
    writer = Writer(folder)
    for rank in ranks:
        steps = pl.DataFrame({"step": [0], "mark_ns": [begun_s * SECOND], "kind": [f"of rank {rank}"]})
        writer.write(rank, "steps", steps)
    begun = begun_s * SECOND
    phases = [Phase(rank, "timeline", 0, begun, begun + SECOND, 1) for rank in ranks]
    about = [Rank(rank, host=folder.name, world=world) for rank in ranks]
    return writer.finish(Manifest(ranks=about, phases=phases, **facts), {"gpus": []})


@pytest.mark.skipif(not DLRM, reason="the shared traces are not here")
def test_a_merged_job_equals_one_that_was_imported_at_once(tmp_path: Path) -> None:
    at_once = import_traces(DLRM, tmp_path / "at-once.fathom")
    parts = [import_traces(DLRM[at::3], tmp_path / f"part-{at}.fathom") for at in (2, 0, 1)]
    merged = merge(parts, tmp_path / "merged.fathom")
    assert merged.ranks == at_once.ranks and merged.machine == at_once.machine
    assert merged.manifest.ranks == at_once.manifest.ranks
    assert all(part.manifest.problems for part in parts) and not merged.manifest.problems
    for name in TABLES:
        for rank in at_once.ranks:
            assert merged.table(name, rank).collect().equals(at_once.table(name, rank).collect())
    merged.verify()


def test_every_rank_keeps_its_tables_and_the_worst_ending_counts(tmp_path: Path) -> None:
    left = node(tmp_path / "a", 0, 2, problems=[Problem("odd", "Odd.", rank=2)])
    right = node(tmp_path / "b", 1, 3, ended="crashed", exit_status=139)
    merged = merge([left, right], tmp_path / "job.fathom", ranks=[1, 2, 3])
    kinds = merged.table("steps").collect()
    assert dict(zip(kinds["rank"], kinds["kind"], strict=True)) == {n: f"of rank {n}" for n in (1, 2, 3)}
    assert [rank.host for rank in merged.manifest.ranks] == ["b", "a", "b"]
    assert (merged.manifest.ended, merged.manifest.exit_status) == ("crashed", 139)
    assert [problem.what for problem in merged.manifest.problems] == ["odd", "ranks-missing"]


def test_a_rank_whose_folder_was_removed_is_missing_and_the_others_stay(tmp_path: Path) -> None:
    parts = [node(tmp_path / name, *ranks) for name, ranks in (("a", (0, 2)), ("b", (1, 3)))]
    merged = merge(parts, tmp_path / "job.fathom")
    shutil.rmtree(merged.path / "rank-2")
    left = open_store(merged.path).verify()
    assert left.ranks == [0, 1, 3]
    assert set(left.table("steps").collect()["rank"]) == {0, 1, 3}
    note = left.manifest.problems[-1]
    assert note.what == "ranks-missing" and "rank 2 was removed" in note.text
    shutil.rmtree(merged.path / "rank-0")
    assert "Missing: 0, 2 (rank 0" in open_store(merged.path).manifest.problems[-1].text


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"world": 8}, "one had 4 ranks, the other 8"),
        ({"begun_s": 1000}, "recorded 899 s apart"),
        ({"environment": {"SLURM_JOB_ID": "8"}}, "SLURM_JOB_ID is 7 in one and 8 in the other"),
    ],
)
def test_soundings_of_different_jobs_are_refused(tmp_path: Path, facts: dict[str, Any], why: str) -> None:
    left = node(tmp_path / "a", 0, environment={"SLURM_JOB_ID": "7"})
    with pytest.raises(BadInputError, match=why):
        merge([left, node(tmp_path / "b", 1, **facts)], tmp_path / "job.fathom")
    assert not (tmp_path / "job.fathom").exists()


def test_a_rank_can_be_neither_twice_in_a_job_nor_missing(tmp_path: Path) -> None:
    left, right = node(tmp_path / "a", 0, 1), node(tmp_path / "b", 1, 2)
    with pytest.raises(BadInputError, match=r"b contains rank 1, like .*a"):
        merge([left, right], tmp_path / "job.fathom")
    with pytest.raises(BadInputError, match="rank 7 is in none of the soundings; they have 0-1"):
        merge([left], tmp_path / "job.fathom", ranks=[0, 7])


@given(st.sets(st.integers(0, 300), min_size=1))
def test_numbers_and_ranges_name_ranks(ranks: set[int]) -> None:
    text = ",".join(str(rank) for rank in ranks)
    assert numbers(text) == sorted(ranks)
    assert numbers(f"{min(ranks)}-{max(ranks)}") == list(range(min(ranks), max(ranks) + 1))


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "5-2", "1,,2", "1-2-3", "0-99999999", "1e3"])
def test_text_that_names_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="ranks"):
        numbers(text)
