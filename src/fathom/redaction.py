"""Patterns of secrets, and those that users add in fathom.toml:

    [redact]
    patterns = ["corp-[0-9a-f]{32}"]

Patterns that are safe in names and JSON match only the secret itself. Others match by what is before it,
like `password=`, and are for prose and command lines: a kernel's name may contain `by_key::`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from fathom.errors import BadInputError
from fathom.settings import FILE, settings_in

HIDDEN = "<redacted>"
# They take linear time: a run of `[\w.-]` is searched from its start only, or to a bounded length.
# Only the last word of a name marks a secret, so that --max-tokens and --tokenizer stay readable.
_LAST = r"(?:token|secret|password|passwd|pwd|passphrase|credentials?|auth|authorization|api_?key|key)"
NAME = rf"(?:[\w.-]*[._-])?{_LAST}"
_ASSIGNED = re.compile(
    rf"""(?<![\w.-])((?:--?)?{NAME}["']?\s*[=:]\s*)(?:"[^"]*"|'[^']*'|[^\s&,;"']+)""", re.I
)
_CAMEL = re.compile(r"""((?:api|access|secret|private)(?:Key|Token)["']?\s*[=:]\s*)["']?[^\s&,;"']+["']?""")
_BEARER = re.compile(r"\b((?:bearer|basic)\s+)[\w.~+/=-]{6,}", re.I)
_IN_URL = re.compile(r"(?<=://)[^/\s@\"'\\]+(?=@)")
_IN_QUERY = re.compile(rf"""(?<=[?&])((?:[\w.-]*[._-])?(?:{_LAST}|sig|signature)=)[^&\s"'\\<>#]+""", re.I)
_LOOKS = re.compile(
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[\w+/=\s\\]*(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
    r"|\b(?:hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|sk-[\w-]{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{12,}|xox[abposr]-[\w-]{8,}|nvapi-[\w-]{8,}|(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w-]{20,}"
    r"|eyJ[\w-]{8,2000}\.[\w-]+\.?[\w-]*|[sr]k_(?:live|test)_\w{8,}|ya29\.[\w-]{8,}|npm_\w{30,}|pypi-[\w-]{16,}"
    r"|do[opr]_v1_[0-9a-f]{32,}|SG\.[\w-]{16,}\.[\w-]{16,}|r8_\w{30,}|gsk_\w{20,}|lin_api_\w{16,})"
)
# In every text that the patterns above change; in the syntax of Rust's regex too.
HINT = (
    r"(?i)://|bearer|basic|[?&]|BEGIN|hf_|sk-|gh[pousr]_|github_pat|glpat|xox|nvapi|AKIA|ASIA|AIza|eyJ"
    r"|k_(?:live|test)_|ya29|npm_|pypi-|_v1_|SG\.|r8_|gsk_|lin_api_"
)


def redact_name(text: str) -> str:
    """Return `text` with the secrets that are recognisable by themselves replaced by HIDDEN."""
    for pattern in (_BEARER, _IN_QUERY):
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    for pattern in (_IN_URL, _LOOKS, *own_patterns()):
        text = pattern.sub(HIDDEN, text)
    return text


def redact_text(text: str) -> str:
    """Return `text` with everything that looks like a secret replaced by HIDDEN."""
    for pattern in (_BEARER, _ASSIGNED, _CAMEL):
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return redact_name(text)


def redact_all(value: Any) -> Any:
    """Return a JSON value with all texts in it redacted."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {redact_all(name): redact_all(part) for name, part in value.items()}
    return [redact_all(part) for part in value] if isinstance(value, list) else value


@cache
def own_patterns() -> tuple[re.Pattern[str], ...]:
    """Return the patterns in `fathom.toml` of the working directory, and in the user's settings.

    Raises BadInputError for a file or pattern that cannot be read.
    """
    files = [Path(FILE)]
    try:
        import platformdirs

        files.append(platformdirs.user_config_path("fathom") / FILE)
    except ImportError:  # a machine that only records may lack it
        pass
    return tuple(_pattern(text, file) for file in files for text in _patterns_in(file))


def _patterns_in(file: Path) -> list[str]:
    section = (settings_in(file) or {}).get("redact", {})
    patterns = section.get("patterns", []) if isinstance(section, dict) else None
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise BadInputError(f"`patterns` under [redact] in {file} is not a list of regular expressions.")
    return patterns


def _pattern(text: str, file: Path) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise BadInputError(f"The pattern {text[:40]!r} in {file} is not valid: {error}.") from None
    if pattern.search(""):
        raise BadInputError(f"The pattern {text[:40]!r} in {file} matches empty text; make it longer.")
    return pattern
