"""Service level objectives, like `ttft<500,tpot<50` in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fathom.errors import BadInputError

LIMITED = ("ttft", "tpot", "e2e")
_TERM = re.compile(r"\s*(\w+)\s*<\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")


@dataclass(frozen=True)
class Slo:
    """Upper limits in milliseconds, which one request must all meet."""

    limits: Mapping[str, float]

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Parse `ttft<500,tpot<50`. Raises BadInputError."""
        limits = {}
        for term in text.split(","):
            parsed = _TERM.fullmatch(term)
            if not parsed or parsed[1] not in LIMITED:
                raise BadInputError(f"--slo has {term!r}; write limits like ttft<500,tpot<50 (ms), e2e<2s.")
            limits[parsed[1]] = float(parsed[2]) * (1000.0 if parsed[3] == "s" else 1.0)
        return cls(limits)

    def met(self, latencies: Mapping[str, float | None]) -> bool:
        """Return whether the request meets every limit; one without the latency does not."""
        return all((ms := latencies.get(name)) is not None and ms < top for name, top in self.limits.items())
