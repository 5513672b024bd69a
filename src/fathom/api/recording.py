"""Record a part of this program."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from fathom.api.sounding import Sounding

if TYPE_CHECKING:
    from fathom.recorder import SelfRecording


class record:  # noqa: N801 - used like a function
    """`with fathom.record("train.fathom") as recording:` records this program's steps until the block ends.

    Works in scripts and notebooks. Under `fathom run`, which records the whole program, it does nothing.
    Afterwards `recording.sounding` is the `Sounding`, or None if nothing was recorded. `depth`, `steps`,
    `settle`, `step_on`, `at`, `on_slow_step` and `what_if` mean the same as for `fathom run`. An existing
    sounding is overwritten only with `replace=True`. Raises BadInputError for invalid options. On entering,
    raises FathomError if `depth="counters"` and hardware counters cannot be sampled.
    """

    def __init__(
        self,
        path: str | Path,
        depth: str = "auto",
        steps: int | None = None,
        *,
        settle: int | str = "auto",
        step_on: str = "auto",
        at: tuple[int, ...] = (),
        on_slow_step: bool = False,
        replace: bool = False,
        what_if: tuple[str, ...] = (),
    ) -> None:
        from fathom.recorder import Plan

        self.path = Path(path)
        self.sounding: Sounding | None = None
        self._plan = Plan(depth, steps, settle, step_on, tuple(at), on_slow_step, what_if=tuple(what_if))
        self._replace = replace
        self._session: SelfRecording | None = None

    def __enter__(self) -> record:
        from fathom.recorder import SelfRecording

        self._session = SelfRecording(self.path, self._plan, replace=self._replace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session is None:
            return
        store = self._session.end(kind)
        self.sounding = None if store is None else Sounding(store)
