"""Choose the kernel and the launch for a dive."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fathom.errors import BadInputError, no_match

if TYPE_CHECKING:
    import polars as pl

    from fathom.sounding import Store

_LISTED = 8
_MOST_WORDS, _MOST_LETTERS = 10, 240
# Demanglers spell these differently, or they occur in every name.
_COMMON = frozenset((
    "void", "int", "bool", "long", "short", "char", "const", "unsigned", "signed", "lambda", "anonymous",
    "namespace", "unnamed", "instance", "operator", "enclosing", "true", "false",
))  # fmt: skip
_WORD = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True)
class Target:
    """A kernel family, and the options with which ncu finds one of its launches.

    `base` and `pattern` are ncu's --kernel-name-base and regular expression. Of the matching launches, ncu
    skips `skip` and profiles `count`, enough to include the family wherever in a step they begin.
    """

    family: str
    name: str
    rank: int
    base: str
    pattern: str
    skip: int
    count: int
    step: int | None  # the settled step in which the profiled launches should be

    @property
    def shape(self) -> str:
        """Return grid and block, like 64x1x1·256x1x1; empty if the sounding lacks them."""
        last = self.family.rpartition(" ")[2]
        return last if "·" in last else ""


def choose(store: Store, pattern: str, launch: int | None = None) -> Target:
    """Return the only family that `pattern` matches (see `sounding.meant`), and its launch.

    `launch` counts the launches with a matching name from 0; by default it is in the first settled step that
    was recorded. Raises BadInputError if no family or several match, or if the family is a collective.
    """
    import polars as pl

    kernels = store.table("kernels").filter(pl.col("family").is_not_null()).collect()
    family = _single_family(
        kernels.filter(~pl.col("kind").is_in(["copy", "set"])), pattern, store.manifest.name
    )
    own = kernels.filter(pl.col("family") == family)
    if "collective" in own["kind"].to_list():
        raise BadInputError(
            f"{family} is a collective, which ncu cannot replay while its peers wait; use its link counters."
        )
    rank = int(own["rank"][0])
    name = str(own["name"][0])
    base, regex = selector(name)
    matching = _matching(kernels.filter(pl.col("rank") == rank), regex)
    step, passing = _passing(store, rank, matching)
    skip = passing if launch is None else launch
    return Target(family, name, rank, base, regex, skip, _window(matching, family), step)


def _single_family(kernels: pl.DataFrame, pattern: str, where: str) -> str:
    import polars as pl

    from fathom.sounding import meant

    times = kernels.group_by("family").agg(time=(pl.col("end_ns") - pl.col("start_ns")).sum())
    names: list[str] = times.sort("time", "family", descending=[True, False])["family"].to_list()
    if not names:
        raise BadInputError(
            f"{where} contains no kernels; if the program uses a GPU, record it again with --depth timeline."
        )
    families = meant(pattern, names)
    if len(families) == 1:
        return families[0]
    if not families:
        raise BadInputError(no_match(f"kernel family of {where}", pattern, names))
    listed = "; ".join(families[:_LISTED]) + ("; …" if len(families) > _LISTED else "")
    raise BadInputError(f"'{pattern}' matches {len(families)} families; choose one of them: {listed}.")


def selector(name: str) -> tuple[str, str]:
    """Return ncu's --kernel-name-base and a regular expression for the kernel of this name in a sounding.

    Demanglers differ in spaces, casts and anonymous namespaces, so the expression matches the words of a C++
    name in order, except those of its argument list.
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


def _matching(kernels: pl.DataFrame, regex: str) -> pl.DataFrame:
    """Return the launches of one rank that ncu would count, in order of their start."""
    import polars as pl

    known = kernels["name"].drop_nulls().unique()
    names = known.filter(known.str.contains(regex, strict=False).fill_null(False))  # in linear time
    phase = pl.col("phase").fill_null("") == "timeline"
    launches = kernels.filter(pl.col("name").is_in(names.implode()))
    timeline = launches.filter(phase)
    return (launches if timeline.is_empty() else timeline).sort("start_ns")


def _passing(store: Store, rank: int, matching: pl.DataFrame) -> tuple[int | None, int]:
    """Return the first recorded step, and the matching launches before it (assuming that steps are alike)."""
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
    """Return how many consecutive matching launches are sure to include one of the family."""
    places = [place for place, own in enumerate(matching["family"].to_list()) if own == family]
    gaps = [later - earlier for earlier, later in pairwise(places)]
    return max(gaps, default=max(len(matching), 1))
