"""A bisection with real git and made timings: the commit is found, and the user's files stay as they are."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from fathom.errors import BadInputError
from fathom.referee import Search, bisecting, find_commit
from fathom.referee.revisions import git, worktrees
from fathom.referee.sides import SideError
from fathom.report.bisection import page

COMMITS = 12
SLOW = 7  # the commit from which on a step takes longer


@pytest.fixture
def repository(tmp_path):
    """Commits 1 to COMMITS, each with its step time in `app/ms`; number 5 does not run."""
    folder = tmp_path / "repository"
    (folder / "app").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=folder, check=True)
    for number in range(1, COMMITS + 1):
        text = "broken" if number == 5 else "10.5" if number >= SLOW else "10"
        (folder / "app" / "ms").write_text(f"{text} {number}")
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", f"change {number}")
        git(folder, "tag", f"v{number}")
    return folder


@pytest.fixture
def made_timings(monkeypatch):
    """Steps that scatter by 0.5 % within a run and by 0.5 % between runs."""
    generator, places = random.Random(1), []

    def timed(search: Search, place: Path) -> list[float]:
        word = (place / "ms").read_text().split()[0]
        if word == "broken":
            raise SideError("raises", "it ended with status 1: broken")
        places.append(place)
        run = float(word) * generator.gauss(1, 0.005)
        return [run * generator.gauss(1, 0.005) for _ in range(20)]

    monkeypatch.setattr(bisecting, "timed", timed)
    return places


def state(folder: Path) -> list[str]:
    words = ("status --porcelain", "rev-parse HEAD", "worktree list", "for-each-ref", "stash list")
    return [git(folder, *word.split()) for word in words]


def test_the_slow_commit_is_found_and_the_users_files_stay(repository, made_timings):
    (repository / "app" / "ms").write_text("edited")
    (repository / "untracked").write_text("mine")
    before, messages = state(repository), []
    search = Search(["unused"], folder=repository / "app", tell=messages.append)
    result = find_commit(search, "v1", f"v{COMMITS}")
    assert (result.first_bad, result.subject) == (git(repository, "rev-parse", f"v{SLOW}"), f"change {SLOW}")
    assert result.ratio == pytest.approx(1.05, abs=0.01) and 1 < result.threshold < result.ratio
    assert state(repository) == before and (repository / "app" / "ms").read_text() == "edited"
    assert not any(place.exists() for place in made_timings)
    assert all(tested.pairs >= 5 for tested in result.tested if tested.verdict != "skip")
    assert len(messages) == len(result.tested) + 1
    assert f"change {SLOW}" in "\n".join(line.plain for line in page(result, 100))


def test_revisions_that_do_not_run_are_skipped(repository, made_timings):
    result = find_commit(Search(["unused"], folder=repository / "app"), "v4", "v7")
    skipped = [tested for tested in result.tested if tested.verdict == "skip"]
    assert [tested.why for tested in skipped] in ([], ["it ended with status 1: broken"])
    assert result.subject == f"change {SLOW}"


def test_if_only_skipped_commits_are_left_all_candidates_are_named(repository, made_timings, monkeypatch):
    timed = bisecting.timed

    def broken(search: Search, place: Path) -> list[float]:
        if (place / "ms").read_text().split()[1] in ("6", "7", "8"):
            raise SideError("raises", "it ended with status 1: broken")
        return timed(search, place)

    monkeypatch.setattr(bisecting, "timed", broken)
    with pytest.raises(BadInputError, match=r"one of these.*change 7"):
        find_commit(Search(["unused"], folder=repository / "app"), "v4", "v9")


def test_equal_revisions_are_refused(repository, made_timings):
    before = state(repository)
    with pytest.raises(BadInputError, match="v3 is not slower than v1"):
        find_commit(Search(["unused"], folder=repository / "app"), "v1", "v3")
    with pytest.raises(BadInputError, match="does not run at v1 or v5"):
        find_commit(Search(["unused"], folder=repository / "app"), "v1", "v5")
    assert state(repository) == before


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("v9", "v2", "not an ancestor"),
        ("v2", "v2", "same commit"),
        ("--help", "v2", "not a commit"),
        ("v1", "missing", "missing is not a commit"),
    ],
)
def test_revisions_that_cannot_be_bisected(repository, good, bad, message):
    with pytest.raises(BadInputError, match=message):
        find_commit(Search(["unused"], folder=repository), good, bad)


def test_outside_of_a_repository(tmp_path):
    with pytest.raises(BadInputError, match="not a git repository"):
        find_commit(Search(["unused"], folder=tmp_path), "a", "b")


def test_each_run_starts_from_the_commit_with_links(repository):
    (repository / "data").mkdir()
    with worktrees(repository / "app", ["v1"], [Path("data")]) as (tree,):
        tree.prepare()
        (tree.place / "ms").write_text("changed by a run")
        (tree.place / "checkpoint").write_text("left by a run")
        tree.prepare()
        assert (tree.place / "ms").read_text() == "10 1" and not (tree.place / "checkpoint").exists()
        assert (tree.root / "data").resolve() == (repository / "data").resolve()
    assert not tree.root.exists() and (repository / "data").is_dir()


def test_a_command_is_timed_and_its_failure_named(tmp_path):
    search = Search(["true"], time="command", folder=tmp_path)
    assert len(bisecting.timed(search, tmp_path)) == 1
    with pytest.raises(SideError, match="status 3: no luck"):
        bisecting.timed(Search(["bash", "-c", "echo no luck; exit 3"], time="command"), tmp_path)
    with pytest.raises(SideError, match="cannot be run"):
        bisecting.timed(Search(["./missing"], time="command"), tmp_path)
