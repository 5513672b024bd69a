"""The API key of a server: read from the environment, and kept out of command lines, results and messages."""

from __future__ import annotations

import os
from urllib.request import Request

from fathom.errors import BadInputError
from fathom.redaction import HIDDEN

VARIABLE = "FATHOM_API_KEY"  # holds the key if --api-key-env names no other


def api_key(variable: str | None = None) -> str | None:
    """Return the key in a variable of the environment; None without one. Raises BadInputError.

    No variable of another program is read unless the user names it: its key may belong to another server.
    """
    key = os.environ.get(variable or VARIABLE, "").strip()
    if variable and not key:
        raise BadInputError(f"--api-key-env names {variable}, which is not set; export it with the key.")
    if not all("!" <= letter <= "~" for letter in key):
        raise BadInputError(
            f"{variable or VARIABLE} holds no API key: it has spaces or non-ASCII characters."
        )
    return key or None


def authorise(request: Request, key: str | None) -> Request:
    """Add the key to a request, and return it; the key does not follow redirections to other servers."""
    if key:
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    return request


def without(key: str | None, text: str) -> str:
    """Return a text without the key, which a server or a program may repeat in its reason."""
    return text.replace(key, HIDDEN) if key else text
