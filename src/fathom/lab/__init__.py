"""Techniques: optimisations as runnable pairs, plain and tuned, which the referee judges on this machine.

Operations import `Draw`, `Source`, the helpers that draw inputs, and the module `jpeg`. Everything
else lists, shows and runs techniques.
"""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.lab.drawing import Draw, matmul_unit, normal, traffic, uniform
    from fathom.lab.driver import Source
    from fathom.lab.operation import Header
    from fathom.lab.recording import NotRecordedError, record_forms
    from fathom.lab.running import Kept, Last, Listed, Outcome, listed, recall, run
    from fathom.lab.surroundings import Here, here, why_not
    from fathom.lab.technique import GROUPS, Technique, chosen, described, naming, techniques

# The process of a side imports operations, but not the modules that only its parent needs.
__all__, __getattr__ = exports(__name__)
