"""The recording that is active in this process, if any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fathom.probe.session import Session

session: Session | None = None
