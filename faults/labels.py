"""Labels of a fault program, read without running it: the target's torch is not needed for that."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fathom.data import parse

if TYPE_CHECKING:
    from fathom.referee import Pair

HERE = Path(__file__).parent
PROGRAMS, TELEMETRY, TIMELINES = HERE / "programs", HERE / "telemetry", HERE / "timelines"
GROUPS = ("input", "host", "framework", "kernels", "communication", "device", "numbers")  # kinds of steps
KINDS = HERE.parent / "src" / "fathom" / "diagnosis" / "kinds"
CATALOGUE = sorted(KINDS / f"{group}.yaml" for group in GROUPS)
FORMS = ("faulty", "mended")
LATE = "FAULT_RANK"  # environment variable: the rank with the fault, if one has it


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The labels of one program, written before any rule for it.

    `kind` is the true cause, or None for a well-tuned program. `expected` lists all findings that the faulty
    form must raise, costliest first; `forbidden` lists tempting ones that would be wrong. `allowed` findings
    are true of both forms, and are not scored. `parts` are, too, but fixing the fault gains part of what they
    predict, so their gains are added to its own. `share` is the fault's share of the faulty step on an H200,
    one number per severity, and `why` explains its calculation. `known_gap` is the reason why no rule can see
    the fault. `needs` has gpu, compile and cupy (true), gpus (one rank each), ranks (on a CPU), and the least
    cores and steps. `agree` is the relative tolerance of the forms' losses; None if their data differ.
    """

    kind: str | None
    expected: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    severity: list[int] = field(default_factory=lambda: [1, 2, 3])
    share: list[float] = field(default_factory=list)
    why: str = ""
    known_gap: str = ""
    needs: dict[str, Any] = field(default_factory=dict)
    agree: float | None = None


@dataclass(frozen=True)
class Program:
    """One file of `programs/`, and its labels."""

    group: str  # the folder
    name: str
    fault: Fault

    @property
    def passed(self) -> list[str]:
        """Findings that are as true as the fault's own."""
        return [*self.fault.allowed, *self.fault.parts]

    @property
    def id(self) -> str:
        """`GROUP/NAME`."""
        return f"{self.group}/{self.name}"

    @property
    def family(self) -> str:
        """The runs that are compared, and therefore recorded on one device."""
        return self.id

    @property
    def module(self) -> str:
        """The module for `python -m` in the repository's root; of synthetic telemetry, that of `build`."""
        place = "" if self.synthetic else "programs."
        return f"faults.{place}{self.group}.{self.name}"

    @property
    def synthetic(self) -> bool:
        """Whether it is made by hand: telemetry, or a simulated timeline."""
        return self.group in (TELEMETRY.name, TIMELINES.name)

    @property
    def forms(self) -> tuple[str, ...]:
        """A well-tuned program has one form."""
        return FORMS if self.fault.kind else ("mended",)

    def command(self, form: str, severity: int, *more: str, ranks: int = 0) -> tuple[str, ...]:
        """The command that runs one form, from the root of the repository; on `ranks`, if not those of
        `needs`.
        """
        needs, on_processor = self.fault.needs, ("--device", "cpu")
        chosen = ("--form", form, "--severity", str(severity))
        chosen += on_processor if "ranks" in needs and "--device" not in more else ()
        ranks = ranks or (needs.get("gpus", needs.get("ranks", 1)) if "--small" not in more else 1)
        several = ("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m")
        return (sys.executable, "-m", *(several if ranks > 1 else ()), self.module, *chosen, *more)

    def pair(self, severity: int = 2, *more: str, metrics: Path | None = None) -> Pair:
        """Both forms as commands; where they shall give the same loss, they write it to `metrics`."""
        from fathom.referee import Pair

        if self.fault.agree is None:
            metrics = None
        more = (*more, "--metrics", str(metrics)) if metrics else more
        plain, tuned = (self.command(form, severity, *more) for form in FORMS)
        return Pair(
            plain=plain,
            tuned=tuned,
            name=self.id,
            findings=tuple(self.fault.expected),
            metrics=metrics,
            agree=self.fault.agree if metrics else None,
        )


def read(file: Path) -> Fault:
    """The labels at the head of `file`, which are literals. Raises ValueError where there are none."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "FAULT":
            assert isinstance(node.value, ast.Call)
            return Fault(**{str(word.arg): ast.literal_eval(word.value) for word in node.value.keywords})
    raise ValueError(f"{file} has no FAULT.")


Suite = Callable[[], Iterable[Program]]


@cache
def programs() -> tuple[Program, ...]:
    """Every program of the suite, by folder and name."""
    files = sorted(file for file in PROGRAMS.glob("*/*.py") if file.stem != "__init__")
    return tuple(Program(file.parent.name, file.stem, read(file)) for file in files)


@cache
def builders() -> tuple[Program, ...]:
    """Synthetic telemetry of devices that are unwell."""
    files = sorted(file for file in TELEMETRY.glob("*.py") if file.stem not in ("__init__", "builder"))
    return tuple(Program(TELEMETRY.name, file.stem, read(file)) for file in files)


@cache
def timelines() -> tuple[Program, ...]:
    """Simulated timelines of jobs on several GPUs."""
    files = sorted(file for file in TIMELINES.glob("*.py") if file.stem not in ("__init__", "simulator"))
    return tuple(Program(TIMELINES.name, file.stem, read(file)) for file in files)


@cache
def kinds() -> dict[str, dict[str, Any]]:
    """The catalogue of finding kinds by id, read as data: a target has no table library to import it with."""
    rows = [{"group": file.stem, **row} for file in CATALOGUE for row in parse(file.read_text())]
    return {row["id"]: row for row in rows}
