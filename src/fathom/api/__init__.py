"""The names of `import fathom`: `record` a part of this program, `open` a sounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.api.plans import plan, plan_serving
    from fathom.api.recording import record
    from fathom.api.sounding import Sounding, compare, open

__all__, __getattr__ = exports(__name__)
