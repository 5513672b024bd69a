"""Find the commit that slowed a step down: git's bisection, with a proof for every revision.

Each revision is timed alternately with the good one, in fresh processes, until the interval of their
ratio is on one side of the threshold. The threshold is halfway between the good and the bad revision.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import Literal

import msgspec

from fathom.errors import BadInputError
from fathom.referee.programs import run_command
from fathom.referee.revisions import BAD, GOOD, Worktree, resolved, worktrees
from fathom.referee.sides import SideError
from fathom.timing import Clock, Ratio, SystemClock, compare, decide, require_margin
from fathom.units import NS_PER_MS

Tell = Callable[[str], None]
SKIP = "skip"


class Tested(msgspec.Struct):
    """One revision: `verdict` is good, bad or skip; `ratio` is its time over that of the good revision."""

    revision: str
    subject: str
    verdict: Literal["good", "bad", "skip"]
    ratio: float | None = None
    interval: list[float] | None = None
    pairs: int = 0
    why: str = ""  # the reason if it was skipped


class Bisection(msgspec.Struct):
    """The first bad commit, and the proof of the whole change from `good` to `bad`."""

    first_bad: str
    subject: str
    good: str
    bad: str
    ratio: float
    interval: list[float]
    threshold: float
    tested: list[Tested] = []


@dataclass(frozen=True)
class Search:
    """How to search: the command, its timing, and when to stop measuring one revision.

    `setup` runs in a worktree after each checkout. `links` are untracked files that the command needs.
    """

    command: list[str]
    time: Literal["steps", "command"] = "steps"
    setup: str | None = None
    links: tuple[Path, ...] = ()
    margin: float = 0.01
    most_pairs: int = 12
    patience_s: float = 3600.0
    folder: Path = field(default_factory=Path)
    clock: Clock = field(default_factory=SystemClock)
    progress: Tell = lambda _: None
    tell: Tell = lambda _: None

    def __post_init__(self) -> None:
        require_margin(self.margin)


def find_commit(search: Search, good: str, bad: str) -> Bisection:
    """Return the first commit after `good`, up to `bad`, that crosses the threshold.

    Raises BadInputError if the revisions are not in one line, do not run, or do not differ by more than the
    margin, and if all candidates were skipped.
    """
    first, last = resolved(search.folder, good, bad)
    with worktrees(search.folder, [first, last], search.links) as (fast, slow):
        search.progress(f"timing {good} and {bad} alternately")
        ratio = _whole_change(search, fast, slow, good, bad)
        threshold = sqrt(ratio.value)
        search.tell(f"{bad} takes {_shown(ratio)} times as long as {good}")
        tested: list[Tested] = []
        commit = slow.started(last, first)
        while commit is None:
            tested.append(_tested(search, fast, slow, threshold))
            search.tell(_line(tested[-1]))
            commit = slow.answer(tested[-1].verdict)
        assert ratio.low is not None and ratio.high is not None
        subject = slow.describe(commit).partition(" ")[2]
        interval = [ratio.low, ratio.high]
        return Bisection(commit, subject, first, last, ratio.value, interval, threshold, tested)


def _whole_change(search: Search, fast: Worktree, slow: Worktree, good: str, bad: str) -> Ratio:
    """Return the ratio of the bad to the good revision. Raises BadInputError unless it is slower."""
    try:
        ratio = _in_turns(search, fast, slow, lambda r: decide(r, search.margin) != "inconclusive")
    except SideError as error:
        raise BadInputError(f"The command does not run at {good} or {bad}: {error}.") from None
    if (decided := decide(ratio, search.margin)) == "inconclusive":
        raise BadInputError(
            f"{ratio.pairs} pairs do not show whether {bad} is slower than {good}: it takes {_shown(ratio)} "
            "times as long. Give more --pairs, or run it on an idle machine."
        )
    if decided != "slower":
        raise BadInputError(
            f"{bad} is not slower than {good}: it takes {_shown(ratio)} times as long, and differences "
            f"of {100 * search.margin:g} % count as the same. Check that the command runs the code of its "
            "working directory."
        )
    return ratio


def _tested(search: Search, fast: Worktree, slow: Worktree, threshold: float) -> Tested:
    """Return the verdict on the revision that is checked out in `slow`."""
    revision = slow.revision
    short, _, subject = slow.describe(revision).partition(" ")
    search.progress(f"timing {short} {subject}")
    result = Tested(revision, subject, "skip")
    try:
        ratio = _in_turns(search, fast, slow, lambda r: _side(r, threshold) is not None)
    except SideError as error:
        result.why = str(error)
        return result
    side = _side(ratio, threshold)
    result.ratio, result.pairs = ratio.value, ratio.pairs
    if ratio.low is not None and ratio.high is not None:
        result.interval = [ratio.low, ratio.high]
    if side is None:
        result.why = f"{ratio.pairs} pairs do not show on which side of the threshold it is"
        return result
    result.verdict = side
    return result


def _side(ratio: Ratio, threshold: float) -> Literal["good", "bad"] | None:
    if ratio.low is not None and ratio.low > threshold:
        return "bad"
    return "good" if ratio.high is not None and ratio.high < threshold else None


def _in_turns(search: Search, fast: Worktree, slow: Worktree, enough: Callable[[Ratio], bool]) -> Ratio:
    """Time both worktrees in the order A B B A until `enough`. Raises SideError if one does not run."""
    blocks: dict[str, list[Sequence[float]]] = {GOOD: [], BAD: []}
    _set_up(search, slow)
    _set_up(search, fast)
    ratio: Ratio | None = None
    for pair in range(search.most_pairs):
        sides = [(GOOD, fast), (BAD, slow)]
        for side, worktree in sides if pair % 2 == 0 else reversed(sides):
            worktree.prepare()
            blocks[side].append(timed(search, worktree.place))
        ratio = compare(blocks[GOOD], blocks[BAD])
        if ratio is not None and ratio.low is not None and enough(ratio):
            break
    assert ratio is not None
    return ratio


def _set_up(search: Search, worktree: Worktree) -> None:
    worktree.prepare()
    if search.setup is not None:
        _run(search, ["bash", "-c", search.setup], worktree.place)


def timed(search: Search, place: Path) -> Sequence[float]:
    """Return the ms of the clean steps of one run, or of the whole command. Raises SideError."""
    if not place.is_dir():
        raise SideError("raises", "the working directory does not exist there")
    if search.time == "command":
        return [_run(search, search.command, place) / NS_PER_MS]
    with tempfile.TemporaryDirectory(prefix="fathom-bisect-") as scratch:
        path = Path(scratch) / "run.fathom"
        options = [
            "--depth",
            "surface",
            "--no-measure",
            "--quiet",
            "--stop-after",
            "recorded",
            "-o",
            str(path),
        ]
        _run(search, [sys.executable, "-m", "fathom", "run", *options, "--", *search.command], place)
        return _clean_steps(path)


def _clean_steps(path: Path) -> list[float]:
    from fathom.analysis import account_of
    from fathom.sounding import open_store

    store = open_store(path)
    for rank in store.ranks[:1]:
        runs = account_of(store, rank, {}).stretches
        if steps := [ns / NS_PER_MS for run in runs for ns, _ in run.durations()]:
            return steps
    raise SideError("raises", "no clean step was recorded")


def _run(search: Search, command: Sequence[str], place: Path) -> int:
    """Run a command in a worktree, and return its ns. Raises SideError if it fails or takes too long."""
    try:
        return run_command(command, search.patience_s, search.clock, place)
    except OSError as error:
        raise SideError("raises", f"{command[0]} cannot be run ({error.strerror})") from None


def _line(tested: Tested) -> str:
    short = f"{tested.revision[:10]} {tested.subject}"
    if tested.verdict == SKIP:
        return f"skipped {short}: {tested.why}"
    low, high = tested.interval or (0.0, 0.0)
    return f"{tested.verdict}  {short}: {tested.ratio:.3f} ({low:.3f} to {high:.3f}), {tested.pairs} pairs"


def _shown(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3f}"
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
