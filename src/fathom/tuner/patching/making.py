"""Make the patch of proven settings: find the places in a run, edit the source, and run the patched copy."""

from __future__ import annotations

import ast
import difflib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from fathom.atomic import write_private
from fathom.recorder import Applied
from fathom.tuner.knobs import Knob, Value
from fathom.tuner.patching.program import Program
from fathom.tuner.patching.sites import Sites
from fathom.tuner.patching.source import Edit, RefusedError, edited
from fathom.tuner.patching.writing import WRITERS, not_in_effect, written
from fathom.tuner.results import Patch
from fathom.tuner.running import Run, Runner, merged
from fathom.tuner.sandbox import Scratch
from fathom.tuner.search import applied

OUTSIDE = "it is set from outside of the code: see the launch line"
IN_PLACE = "The patched program was not run, because it would have changed the files in place."
UNSEEN = "the run that looks for the places in the source ended early"
Values = Sequence[tuple[Knob, Value]]
NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass
class Draft:
    """Edits of the source by knob, the changed files, and the reasons why other knobs are not in it."""

    program: Program
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def add(self, knob: Knob, value: Value) -> None:
        """Add a knob's value, or the reason why it cannot be written."""
        try:
            self.edits[knob.id] = written(self.program, value.acts)
            self._changed()
        except RefusedError as refused:
            self.drop(knob.id, str(refused))

    def drop(self, knob: str, why: str) -> None:
        """Leave a knob out for a reason."""
        self.edits.pop(knob, None)
        self.left[knob] = why

    def drop_all(self, why: str) -> None:
        """Leave all knobs out."""
        for knob in list(self.edits):
            self.drop(knob, why)

    def files(self) -> dict[str, bytes]:
        return {path: text.encode() for path, text in self._changed().items()}

    def _changed(self) -> dict[str, str]:
        edits = [edit for edits in self.edits.values() for edit in edits]
        changed = {}
        for path in dict.fromkeys(edit.path for edit in edits):
            text = edited(self._text(path), [edit for edit in edits if edit.path == path])
            try:
                ast.parse(text.encode())
            except SyntaxError:
                raise RefusedError(f"{path} would be no valid Python with it") from None
            changed[path] = text
        return changed

    def _text(self, path: str) -> str:
        return self.program.source(str(self.program.folder / path)).text

    def diff(self) -> str:
        """Return the patch; empty if nothing is changed."""
        return "".join(diff_of(path, self._text(path), text) for path, text in self._changed().items())


def draft_of(program: Program, values: Values) -> Draft:
    """Write all values that can be written."""
    draft, order = Draft(program), list(WRITERS)
    coded = [(knob, value) for knob, value in values if value.acts]
    for knob, value in sorted(coded, key=lambda each: max(map(order.index, each[1].acts))):
        draft.add(knob, value)
    return draft


@dataclass(frozen=True)
class Patching:
    """Makes patches of the program that `runner` runs in `scratch`, in runs of at most `patience_s`.

    `differs` returns why a run's results are others than those of the program as it is.
    """

    runner: Runner
    scratch: Scratch
    patience_s: float
    differs: Callable[[Run], str]

    def patch(self, values: Values, file: Path) -> Patch:
        """Return the patch of these values, written to `file` unless it is empty."""
        setting = merged([applied(value) for _, value in values])
        launch = _launch(setting, self.runner.command)
        outside = {knob.id: OUTSIDE for knob, value in values if not value.acts}
        if len(outside) == len(values):
            return Patch(left=outside, launch=launch)
        draft = self._drafted(values, setting)
        verified = bool(draft.edits) and not self.scratch.in_place and self._verified(draft, values, setting)
        file.unlink(missing_ok=True)  # of an earlier search
        if text := draft.diff():
            write_private(file, text)
        note = IN_PLACE if text and self.scratch.in_place else ""
        left = {**draft.left, **outside}
        return Patch(str(file) if text else None, list(draft.edits), left, launch, verified, note)

    def _drafted(self, values: Values, setting: Applied) -> Draft:
        run, seen = self.runner.located(_without_acts(setting), self.patience_s)
        program = Program(self.scratch.folder, self.scratch.cwd, seen)
        if run.status == "done" and seen:
            return draft_of(program, values)
        draft = Draft(program)
        for knob, value in values:
            if value.acts:
                draft.drop(knob.id, run.why or UNSEEN)
        return draft

    def _verified(self, draft: Draft, values: Values, setting: Applied) -> bool:
        """Run the patched copy until all settings left in the draft are in effect; return whether any is."""
        while draft.edits:
            rest = [applied(value) for knob, value in values if knob.id in draft.left]
            trial = merged([_without_acts(setting), *rest])
            run, seen = self.runner.located(trial, self.patience_s, draft.files())
            failed = _failure(run, seen) or self.differs(run)
            if failed:
                draft.drop_all(f"the patched copy did not run as proven: {failed}")
                return False
            if not _drop_missing(draft, values, seen):
                return True
        return False


def _failure(run: Run, seen: Sequence[Sites]) -> str:
    if run.status != "done":
        return run.why or run.status
    return "" if seen else UNSEEN


def _drop_missing(draft: Draft, values: Values, seen: Sequence[Sites]) -> bool:
    """Leave out the knobs that are not in effect; return whether there are any."""
    missing = {knob.id: not_in_effect(seen, value.acts) for knob, value in values if knob.id in draft.edits}
    for knob, why in missing.items():
        if why:
            draft.drop(knob, why)
    return any(missing.values())


def _without_acts(setting: Applied) -> Applied:
    return Applied(environment=setting.environment, arguments=setting.arguments)


def _launch(setting: Applied, command: Sequence[str]) -> str:
    """Return the command with the variables and arguments of a setting; empty if it has none."""
    if not setting.environment and not setting.arguments:
        return ""
    variables = [f"{name}={shlex.quote(value)}" for name, value in setting.environment.items()]
    return " ".join([*variables, shlex.join(setting.words(list(command)))])


def diff_of(path: str, before: str, after: str) -> str:
    """Return the diff of a file; its lines keep their endings."""
    label = f"{path}\t" if " " in path else path  # ends a name with blanks
    header = f"--- a/{label}\n+++ b/{label}\n"
    lines = list(difflib.unified_diff(_lines(before), _lines(after), n=3))[2:]
    ended = (line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)
    return header + "".join(ended) if lines else ""


def _lines(text: str) -> list[str]:
    """Return the lines with their endings; only a line feed ends a line, as git counts."""
    return StringIO(text, newline="\n").readlines()
