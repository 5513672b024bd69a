"""Small programs that run in this process, with stand-ins for torch's classes that record their use.

Their stacks are read from Python's own frames, and what a patched program does is seen by running it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from msgspec import structs

from fathom.probe.knobs.sites import _position
from fathom.tuner.patching.making import diff_of
from fathom.tuner.patching.program import Program
from fathom.tuner.patching.sites import Frame, Place, Sites
from fathom.tuner.patching.source import Edit, edited

POSITIONAL = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")
HERE = __file__


def stack() -> tuple[Frame, ...]:
    """Return the frames outside of this file, the innermost first."""
    frame, rows = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        if code.co_filename != HERE:
            rows.append(Frame(code.co_filename, code.co_name, code.co_firstlineno, *_position(frame)))
        frame = frame.f_back
    return tuple(rows)


@dataclass
class Traced:
    """One run of a program: the places that the probe would record, and the things that it constructed."""

    folder: Path
    name: str = "train.py"
    places: list[Place] = field(default_factory=list)
    loaders: list[dict[str, Any]] = field(default_factory=list)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    modules: list[Any] = field(default_factory=list)  # that were called
    steps: list[tuple[Frame, ...]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def run(self, data: bytes, **names: Any) -> Traced:
        """Write the program and run it."""
        path = self.folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        space = {"__name__": "__main__", **self._names(), **names}
        exec(compile(data, str(path), "exec"), space)
        return self

    def _names(self) -> dict[str, Any]:
        run = self

        class DataLoader:
            def __init__(
                self,
                dataset: Any,
                batch_size: Any = 1,
                shuffle: Any = None,
                sampler: Any = None,
                batch_sampler: Any = None,
                num_workers: Any = 0,
                collate_fn: Any = None,
                *,
                prefetch_factor: Any = None,
                persistent_workers: Any = False,
            ) -> None:
                here = locals()
                given = {name: here[name] for name in (*POSITIONAL, "prefetch_factor", "persistent_workers")}
                run.loaders.append(given)
                about = {name: value for name, value in given.items() if isinstance(value, (int, type(None)))}
                about["iterable"] = dataset == "stream"
                run.places.append(Place("loader", type(self).__name__, stack(), about, POSITIONAL))

        class Module:
            def __init__(self) -> None:
                self.compiled, self.calls = False, 0

            def __call__(self, *_: Any, **__: Any) -> Module:
                if not self.calls:
                    run.places.append(Place("module", type(self).__name__, stack(), {"device": "cpu"}))
                    run.modules.append(self)
                    self.was_compiled = self.compiled
                self.calls += 1
                run.steps.append(stack())
                return self

            def compile(self, **options: Any) -> None:
                self.compiled = options or True

            def to(self, *_: Any, **__: Any) -> Module:
                return self

        class AdamW:
            def __init__(self, params: Any, lr: Any = 1, *, fused: Any = None, foreach: Any = None) -> None:
                run.events.append("optimizer")
                about = {"fused": fused, "foreach": foreach, "differentiable": False}
                run.optimizers.append({"params": params, "lr": lr, **about})
                run.places.append(Place("optimizer", type(self).__name__, stack(), about, ("params", "lr")))

            def step(self) -> None:
                run.events.append("step")
                run.steps.append(stack())

        return {"DataLoader": DataLoader, "Module": Module, "AdamW": AdamW, "events": self.events}

    def without_columns(self) -> Traced:
        """Return this run as Python 3.10 would record it: frames have lines only."""
        places = [
            structs.replace(each, stack=tuple(map(_without_columns, each.stack))) for each in self.places
        ]
        return replace(self, places=places)

    def program(self) -> Program:
        """Return the program with the places of this run."""
        path = str(self.folder / self.name)
        sources = {path: crc32((self.folder / self.name).read_bytes())}
        sites = Sites(path, sources, tuple(self.places), tuple(self.steps[-1:]), {})
        return Program(self.folder, self.folder, [sites])


def _without_columns(frame: Frame) -> Frame:
    return structs.replace(frame, end_line=None, column=None, end_column=None)


def apply(program: Program, edits: list[Edit], with_git: bool = True) -> bytes:
    """Apply the edits as a patch with git, or with patch; return the file's content."""
    path = edits[0].path
    before = program.source(str(program.folder / path)).text
    diff = diff_of(path, before, edited(before, edits))
    command = ["git", "apply", "-"] if with_git else ["patch", "-p1", "--binary"]
    done = subprocess.run(command, cwd=program.folder, input=diff.encode(), capture_output=True, check=False)
    assert done.returncode == 0, (done.stderr, done.stdout, diff)
    return (program.folder / path).read_bytes()
