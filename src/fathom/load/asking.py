"""Ask a server with OpenAI's API: where it is, and whether it answers for a model."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from urllib.parse import urlsplit, urlunsplit

from fathom.errors import BadInputError
from fathom.load.key import authorise, without

API = "/v1"  # the end of an address of OpenAI's API
PATIENCE_S = 120.0  # a server may load the model for its first request
MOST = 1 << 16  # bytes of an answer
KEYLESS = (401, 403)  # statuses of a server that demands a key, or another one
MOST_SHOWN = 200  # characters of the server's reason


def endpoint(url: str, path: str) -> str:
    """Return the address of `path` on the server with OpenAI's API at `url`."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    base = parts.path.rstrip("/").removesuffix(API)
    return urlunsplit((parts.scheme, parts.netloc, f"{base}/{path}", "", ""))


def require_answer(url: str, model: str, key: str | None = None) -> None:
    """Send a short request, to show a wrong address, name or key early. Raises BadInputError."""
    to = endpoint(url, "v1/chat/completions")
    if urlsplit(to).scheme not in ("http", "https"):
        raise BadInputError(f"{url} is not an address of HTTP; give one like http://127.0.0.1:8000.")
    content = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    asked = urllib.request.Request(
        to, json.dumps(content).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(authorise(asked, key), timeout=PATIENCE_S) as answer:
            answer.read(MOST)
    except urllib.error.HTTPError as error:
        if error.code in KEYLESS:
            raise BadInputError(_without_right(to, error, key)) from None
        reason = without(key, _reason(error))
        raise BadInputError(
            f"{to} refuses a request for the model {model!r} with status {error.code}{reason}."
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        why = str(getattr(error, "reason", error)) or type(error).__name__
        raise BadInputError(f"No server answers at {to} ({why}); start it, or correct the address.") from None


def _without_right(to: str, error: urllib.error.HTTPError, key: str | None) -> str:
    """Return the message for a server that demands a key."""
    reason = without(key, _reason(error))
    if key:
        return f"{to} refuses the API key with status {error.code}{reason}; correct the key."
    to_do = "name the variable that holds the key with --api-key-env"
    return f"{to} demands an API key, with status {error.code}{reason}; {to_do}."


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the server's own words: OpenAI's `error.message`, FastAPI's `detail`, or plain text."""
    try:
        body = error.read(MOST).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        return ""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        read = body
    if isinstance(read, dict):
        error_of = read.get("error")
        own = error_of.get("message") if isinstance(error_of, dict) else error_of
        read = own or read.get("detail") or read.get("message")
    words = " ".join(str(read or "").split()).rstrip(".")
    return f": {words[:MOST_SHOWN]}" if words else ""
