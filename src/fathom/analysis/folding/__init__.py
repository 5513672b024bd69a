"""Hardware counters per kernel family, inferred from samples of the whole device and the kernels that ran."""

from fathom.analysis.folding.counters import counters_of, counters_table, fold_rank
from fathom.analysis.folding.families import by_family
from fathom.analysis.folding.kinds import bare, kind_of
from fathom.analysis.folding.results import Alignment, Folding, Pool, facts_from
from fathom.analysis.folding.rows import static_attributes
from fathom.analysis.folding.timeline import Stretch, stretch_around

__all__ = [
    "Alignment",
    "Folding",
    "Pool",
    "Stretch",
    "bare",
    "by_family",
    "counters_of",
    "counters_table",
    "facts_from",
    "fold_rank",
    "kind_of",
    "static_attributes",
    "stretch_around",
]
