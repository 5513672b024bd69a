"""Sign recorded commands, so that only those recorded here by this user are run again without asking.

A sounding may come from anyone, and so may the command in its manifest. The signature is an HMAC of the
command, the host and the user with a private key, which is made for the first recording.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import platform
import secrets
from contextlib import suppress
from pathlib import Path

from fathom.machine import home
from fathom.regular import read_regular

KEY_BYTES = 32


def signature(command: list[str]) -> str | None:
    """Return the signature of a command that is being recorded; None if no key can be stored."""
    key = _key() or _new_key()
    return _signed(key, command) if key else None


def is_ours(command: list[str], signed: str | None) -> bool:
    """Return whether `signed` shows that this user recorded the command on this host."""
    key = _key()
    return bool(key and signed and hmac.compare_digest(_signed(key, command), signed))


def _signed(key: bytes, command: list[str]) -> str:
    user = os.getuid() if hasattr(os, "getuid") else None
    message = json.dumps([platform.node(), user, command]).encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _file() -> Path:
    return home() / "key"


def _key() -> bytes | None:
    """Return the stored key; None if there is none, or if others may have read or written it."""
    try:
        facts = _file().stat()
        private = facts.st_uid == os.getuid() and not facts.st_mode & 0o077
        key = read_regular(_file(), KEY_BYTES) if private else b""
    except (OSError, AttributeError):
        return None
    return key if len(key) == KEY_BYTES else None


def _new_key() -> bytes | None:
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = _file().with_name(f"key.{os.getpid()}.part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):  # another recording was quicker
            os.link(part, _file())  # unlike a rename, it never replaces a key
        part.unlink()
    return _key()
