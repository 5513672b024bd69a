"""Fathom for coding agents: a server of the Model Context Protocol over soundings in given folders.

It reads by default. Programs run only if they match a pattern that the user allowed. Needs the extra `agent`.
"""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.agent.allowed import Allowed
    from fathom.agent.roots import Roots
    from fathom.agent.server import make_server, serve_http, serve_stdio

# The server imports the MCP SDK, which only this extra installs.
__all__, __getattr__ = exports(__name__)
