"""A sounding without its samples keeps the counters of kernel families."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fathom.analysis.folding import counters_of
from fathom.cli.main import app
from fathom.errors import BadInputError
from fathom.recorder import folded
from fathom.sounding import open_store
from tests.support import kernel_soundings

KEY = ["family", "counter", "source"]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    return kernel_soundings.make(tmp_path_factory.mktemp("sampled") / "run.fathom")


def values(store):
    return counters_of(store, 0).frame.filter(source="PM sampling").sort(KEY)


def test_the_counters_of_families_stay_and_their_samples_go(tmp_path, sampled):
    small = folded(sampled, tmp_path / "small.fathom").verify()
    assert values(small).equals(values(sampled)) and len(values(small))
    assert small.table("samples").collect().is_empty()
    assert set(small.table("kernels").collect()["phase"]) == {"timeline"}
    assert not counters_of(small, 0).abstained
    (rank,), (before,) = small.manifest.ranks, sampled.manifest.ranks
    assert rank.facts.items() >= before.facts.items() and rank.facts.keys() - before.facts == {"folding"}


def test_folding_again_changes_nothing(tmp_path, sampled):
    once = folded(sampled, tmp_path / "once.fathom")
    twice = folded(once, tmp_path / "twice.fathom")
    assert values(twice).equals(values(once))


def test_nothing_is_overwritten(tmp_path, sampled):
    folded(sampled, tmp_path / "small.fathom")
    with pytest.raises(BadInputError, match="already exists"):
        folded(sampled, tmp_path / "small.fathom")


def test_the_command_packs_it_beside_the_sounding(tmp_path, sampled):
    packed = tmp_path / "small.fathom.zip"
    done = CliRunner().invoke(app, ["pack", str(sampled.path), "--folded", "-o", str(packed)])
    assert done.exit_code == 0, done.output
    assert values(open_store(packed)).equals(values(sampled))
