"""Serving engines: their requests, from arrival to last byte, and the iterations that generate tokens.

Each engine has one module of hooks. A hook names an attribute of the engine; if a release lacks one, that
engine's requests are not recorded, a note says so, and nothing else changes.
"""

from __future__ import annotations

from fathom.probe.engines import http, llama, sglang, sglang_frontend, transformers, vllm, vllm_frontend
from fathom.probe.engines.serving import PART, Serving
from fathom.probe.hooks.patches import Patches
from fathom.probe.session import Session


def install(session: Session, patches: Patches) -> None:
    """Watch the engines that this process imports."""
    serving = Serving(session)
    for part in (http, transformers, llama, vllm, vllm_frontend, sglang, sglang_frontend):
        part.install(serving, patches)
