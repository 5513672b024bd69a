"""A technique: its header, its files, and the pair that the referee is given."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from fathom.errors import BadInputError
from fathom.lab.header import PROVEN, Header, Needs, code, read
from fathom.referee.pair import Pair

INCLUDE = Path(__file__).parent / "include"
_CHOOSING = re.compile(r"autotune|cudnn\.benchmark\b")
_MUST = ("inputs", "plain", "tuned")
_MAY = ("reference", "variants", "work")


@dataclass(frozen=True)
class Technique:
    """One file of `techniques/GROUP/`, with a `.cu` of the same name beside it where it has kernels."""

    path: Path
    header: Header
    functions: frozenset[str]

    @property
    def name(self) -> str:
        return self.path.stem.replace("_", "-")

    @property
    def group(self) -> str:
        return self.path.parent.name

    @cached_property
    def sources(self) -> list[Path]:
        """Its files, the Python one first."""
        kernels = self.path.with_suffix(".cu")
        return [self.path, *([kernels] if kernels.exists() else [])]

    @property
    def compiled(self) -> bool:
        """Whether it has kernels in CUDA C++."""
        return len(self.sources) > 1

    @property
    def needs(self) -> Needs:
        """What the header says; kernels in CUDA C++ need what compiles them, and these and Triton's a GPU."""
        needs = self.header.needs
        packages = ("cuda.core", *needs.packages) if self.compiled else needs.packages
        gpu = needs.gpu or self.compiled or "triton" in packages
        return replace(needs, gpu=gpu, packages=packages)

    @cached_property
    def chooses(self) -> bool:
        """Whether kernels are chosen by timing them, which goes wrong beside others."""
        return _CHOOSING.search(self.path.read_text(encoding="utf-8")) is not None

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits that change with what is proven: code, and what the header says of proofs."""
        decisive = {name: getattr(self.header, name) for name in PROVEN}
        included = sorted(INCLUDE.iterdir()) if self.compiled else []
        others = [path.read_bytes() for path in (*self.sources[1:], *included)]
        content = [json.dumps(decisive).encode(), code(self.path).encode(), *others]
        return sha256(b"\0".join(content)).hexdigest()[:16]

    @property
    def pair(self) -> Pair:
        """The two forms, for the referee, the crafted kernels and the suite of faults alike."""
        at = {name: f"{self.path}:{name}" for name in (*_MUST, *_MAY) if name in self.functions}
        header = self.header
        return Pair(
            plain=at["plain"],
            tuned=at["tuned"],
            inputs=at["inputs"],
            reference=at.get("reference"),
            variants=at.get("variants"),
            work=at.get("work"),
            name=self.name,
            precision=header.precision,
            reduction=header.reduction,
            allow=header.allow,
            findings=header.findings,
        )


def technique_of(path: Path) -> Technique:
    """The technique of one file. Raises BadInputError."""
    header, functions = read(path)
    missing = [name for name in _MUST if name not in functions]
    if missing:
        raise BadInputError(f"{path} has no function '{missing[0]}'; a technique needs {', '.join(_MUST)}.")
    return Technique(path, header, functions)
