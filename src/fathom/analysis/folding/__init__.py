"""Hardware counters per kernel family, inferred from samples of the whole device and the recorded kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.folding.align import Excerpt, excerpt_around, excerpt_of_step
    from fathom.analysis.folding.counters import counters_of, counters_table, fold_rank
    from fathom.analysis.folding.families import by_family
    from fathom.analysis.folding.kinds import bare, is_share, kind_of
    from fathom.analysis.folding.results import Alignment, Folding, Pool, facts_from
    from fathom.analysis.folding.rows import static_attributes

__all__, __getattr__ = exports(__name__)
