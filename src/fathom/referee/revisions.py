"""Revisions of a git repository in temporary worktrees: the user's own files stay as they are."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fathom.errors import BadInputError

GOOD, BAD = "good", "bad"
_FIRST = re.compile(r"^([0-9a-f]{40,64}) is the first bad commit", re.M)
_COMMIT = re.compile(r"^[0-9a-f]{40,64}$", re.M)
_ONLY_SKIPPED = "only 'skip'ped commits left"
_NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")


def git(folder: Path, *words: str) -> str:
    """Return the output of a git command. Raises BadInputError with git's message if it fails."""
    done = _run(folder, *words)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        hint = "; run it inside the program's git repository" if "not a git repository" in said else ""
        raise BadInputError(f"git {words[0]} failed: {said.removeprefix('fatal: ').rstrip('.')}{hint}.")
    return done.stdout.strip()


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # Inside a hook, variables like GIT_DIR name another repository or index.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *_NO_HOOKS, *words]
    try:
        return subprocess.run(
            command, cwd=folder, env=clean | {"LC_ALL": "C"}, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise BadInputError("git is not installed; bisecting needs it.") from None


class Worktree:
    """A temporary checkout. `place` is the working directory in it that corresponds to the user's."""

    def __init__(self, root: Path, within: Path, links: Sequence[Path]) -> None:
        self.root, self.place = root, root / within
        self._links = links

    def prepare(self) -> None:
        """Undo the last run's changes, and link the user's untracked files."""
        git(self.root, "reset", "--hard", "--quiet")
        git(self.root, "clean", "-fdq", *(word for link in self._links for word in ("-e", f"/{link}")))
        for link in self._links:
            target = self.root / link
            if not target.is_symlink() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(self._source / link)

    @property
    def _source(self) -> Path:
        common = Path(git(self.root, "rev-parse", "--path-format=absolute", "--git-common-dir"))
        return Path(git(common, "worktree", "list", "--porcelain").splitlines()[0].removeprefix("worktree "))

    @property
    def revision(self) -> str:
        """The commit that is checked out."""
        return git(self.root, "rev-parse", "HEAD")

    def describe(self, revision: str) -> str:
        """Return a commit's short hash and subject."""
        return git(self.root, "log", "-1", "--format=%h %s", revision)

    def started(self, bad: str, good: str) -> str | None:
        """Start a bisection; return the first bad commit if it is known at once."""
        return self._answer(_run(self.root, "bisect", "start", bad, good))

    def answer(self, verdict: str) -> str | None:
        """Judge the commit that is checked out, and check out the next one; return the first bad commit.

        `verdict` is good, bad or skip. Raises BadInputError if only skipped commits are left.
        """
        return self._answer(_run(self.root, "bisect", verdict))

    def _answer(self, done: subprocess.CompletedProcess[str]) -> str | None:
        if first := _FIRST.search(done.stdout):
            return first[1]
        if _ONLY_SKIPPED in done.stdout:
            left = ", ".join(map(self.describe, _COMMIT.findall(done.stdout)))
            raise BadInputError(
                f"The first slow commit is one of these; those that were skipped cannot be judged: {left}."
            )
        if done.returncode:
            raise BadInputError(
                f"git bisect failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}."
            )
        return None


def resolved(folder: Path, good: str, bad: str) -> tuple[str, str]:
    """Return both commits. Raises BadInputError unless `good` is an ancestor of `bad`."""
    git(folder, "rev-parse", "--show-toplevel")
    first, last = (_commit(folder, name) for name in (good, bad))
    if first == last:
        raise BadInputError(f"{good} and {bad} are the same commit; give an earlier --good.")
    if _run(folder, "merge-base", "--is-ancestor", first, last).returncode:
        raise BadInputError(f"{good} is not an ancestor of {bad}; give revisions of one branch.")
    return first, last


def _commit(folder: Path, name: str) -> str:
    done = _run(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.returncode:
        raise BadInputError(f"{name} is not a commit of this repository; `git log` lists them.")
    return done.stdout.strip()


@contextmanager
def worktrees(folder: Path, revisions: Sequence[str], links: Sequence[Path] = ()) -> Iterator[list[Worktree]]:
    """Context manager with a worktree for each of the revisions, removed at the end.

    `links` are untracked files or directories of the user's checkout, relative to its root, to which links
    are made. Raises BadInputError outside of a repository.
    """
    top = Path(git(folder, "rev-parse", "--show-toplevel"))
    with tempfile.TemporaryDirectory(prefix="fathom-bisect-") as scratch:
        roots = [Path(scratch) / str(number) for number in range(len(revisions))]
        try:
            for root, revision in zip(roots, revisions, strict=True):
                git(top, "worktree", "add", "--detach", "--quiet", str(root), revision)
            within = folder.resolve().relative_to(top.resolve())
            yield [Worktree(root, within, links) for root in roots]
        finally:
            for root in roots:
                _run(top, "worktree", "remove", "--force", "--force", str(root))
            _run(top, "worktree", "prune")
