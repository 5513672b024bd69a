"""Searches settings of programs and parameters of kernels; the referee proves those that are kept."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.tuner.adapter import knobs_in
    from fathom.tuner.adaptive import Adaptive, adapt
    from fathom.tuner.kernel_search import Searching, labelled, search_kernels, search_technique
    from fathom.tuner.kernels import Ranked, Ranking, Sandbox, Searched, rank_kernels
    from fathom.tuner.knobs import Knob, catalogue
    from fathom.tuner.lanes import lanes_of
    from fathom.tuner.options import Options
    from fathom.tuner.results import Patch, Setting, Tried, Tuned
    from fathom.tuner.tuning import tune

__all__, __getattr__ = exports(__name__)
