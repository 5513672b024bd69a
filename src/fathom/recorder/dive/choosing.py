"""Which kernel, and which of its launches, a dive is about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fathom.errors import BadInputError

if TYPE_CHECKING:
    import polars as pl

    from fathom.sounding import Store

_LISTED = 8
_MOST_WORDS, _MOST_LETTERS = 10, 240
# Spelled differently by different demanglers, or of every name.
_COMMON = frozenset((
    "void", "int", "bool", "long", "short", "char", "const", "unsigned", "signed", "lambda", "anonymous",
    "namespace", "unnamed", "instance", "operator", "enclosing", "true", "false",
))  # fmt: skip
_WORD = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True)
class Target:
    """A kernel family, and how ncu finds a launch of it.

    `base` and `pattern` are ncu's --kernel-name-base and regular expression; of the launches that match,
    `skip` pass and `count` are profiled, so many that the family is among them wherever in a step they begin.
    """

    family: str
    name: str
    rank: int
    base: str
    pattern: str
    skip: int
    count: int
    step: int | None  # the settled step that `skip` aims at

    @property
    def shape(self) -> str:
        """Grid and block: 64x1x1·256x1x1; empty where the sounding does not know them."""
        last = self.family.rpartition(" ")[2]
        return last if "·" in last else ""


def choose(store: Store, pattern: str, launch: int | None = None) -> Target:
    """The one family that `pattern` means, as `sounding.meant` has it, and its launch.

    `launch` counts launches whose name matches, from 0 on; by default one of the first settled step that was
    recorded. Raises BadInputError where no family or several match, or the family is a collective.
    """
    import polars as pl

    kernels = store.table("kernels").filter(pl.col("family").is_not_null()).collect()
    family = _one(kernels.filter(~pl.col("kind").is_in(["copy", "set"])), pattern, store.manifest.name)
    own = kernels.filter(pl.col("family") == family)
    if "collective" in own["kind"].to_list():
        raise BadInputError(
            f"{family} is a collective, which ncu cannot repeat while its peers wait; see its link counters."
        )
    rank = int(own["rank"][0])
    name = str(own["name"][0])
    base, regex = selector(name)
    matching = _matching(kernels.filter(pl.col("rank") == rank), base, regex)
    step, passing = _passing(store, rank, matching)
    skip = passing if launch is None else launch
    return Target(family, name, rank, base, regex, skip, _window(matching, family), step)


def _one(kernels: pl.DataFrame, pattern: str, where: str) -> str:
    import polars as pl

    from fathom.sounding import meant

    times = kernels.group_by("family").agg(time=(pl.col("end_ns") - pl.col("start_ns")).sum())
    names: list[str] = times.sort("time", "family", descending=[True, False])["family"].to_list()
    if not names:
        raise BadInputError(
            f"{where} holds no kernels; if its program uses a GPU, record again with --depth timeline."
        )
    found = meant(pattern, names)
    if len(found) == 1:
        return found[0]
    listed = "; ".join((found or names)[:_LISTED]) + ("; …" if len(found or names) > _LISTED else "")
    if found:
        raise BadInputError(f"'{pattern}' means {len(found)} families, so name one of them: {listed}.")
    why = f"No kernel family of {where} matches '{pattern}'"
    raise BadInputError(f"{why}; those with most time are {listed}.")


def selector(name: str) -> tuple[str, str]:
    """(ncu's --kernel-name-base, a regular expression) that find a kernel by the name in a sounding.

    Demanglers differ in spaces, casts and unnamed namespaces, so a C++ name is found by its words, in order,
    without those of its argument list.
    """
    if name.startswith("_Z"):
        return "mangled", f"^{re.escape(name)}$"
    if not re.search(r"[<(]", name):
        return "function", f"^{re.escape(name)}$"
    words = [word for word in _WORD.findall(_before_arguments(name)) if word not in _COMMON]
    kept: list[str] = []
    for word in words[:_MOST_WORDS]:
        if sum(map(len, kept)) + len(word) > _MOST_LETTERS:
            break
        kept.append(word)
    return "demangled", r".*".join(rf"\b{word}\b" for word in kept) if kept else re.escape(name)


def _before_arguments(name: str) -> str:
    plain = name.replace("(anonymous namespace)", "")
    depth = 0
    for place, letter in enumerate(plain):
        if letter == "(" and depth == 0:
            return plain[:place]
        depth += (letter in "<(") - (letter in ">)" and plain[place - 1 : place] != "-")
    return plain


def _matching(kernels: pl.DataFrame, base: str, regex: str) -> pl.DataFrame:
    """Launches of one rank that ncu would count, in order of their start."""
    import polars as pl

    told = re.compile(regex)
    names = [name for name in kernels["name"].drop_nulls().unique().to_list() if told.search(name)]
    phase = pl.col("phase").fill_null("") == "timeline"
    found = kernels.filter(pl.col("name").is_in(names))
    timeline = found.filter(phase)
    return (found if timeline.is_empty() else timeline).sort("start_ns")


def _passing(store: Store, rank: int, matching: pl.DataFrame) -> tuple[int | None, int]:
    """(the first recorded step, how many matching launches come before it if all steps are alike)."""
    import polars as pl

    recorded = matching["phase"].drop_nulls().unique().to_list()
    steps = (
        store.table("steps", rank)
        .filter(pl.col("parent").is_null(), pl.col("phase").is_in(recorded or ["timeline"]))
        .collect()
    )
    if steps.is_empty():
        return None, 0
    first = int(steps["step"].min())  # type: ignore[arg-type]
    return first, round(len(matching) / len(steps) * first)


def _window(matching: pl.DataFrame, family: str) -> int:
    """So many launches in a row hold one of the family, wherever they begin."""
    places = [place for place, own in enumerate(matching["family"].to_list()) if own == family]
    gaps = [later - earlier for earlier, later in pairwise(places)]
    return max(gaps, default=max(len(matching), 1))
