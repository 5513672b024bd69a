"""Read `fathom.toml`, the settings of a project or a user."""

from __future__ import annotations

from pathlib import Path

from fathom.errors import BadInputError, file_error
from fathom.regular import read_regular
from fathom.units import MIB

FILE = "fathom.toml"


def settings_in(file: Path) -> dict[str, object] | None:
    """Return a settings file's content; None if it does not exist. Raises BadInputError if unreadable."""
    try:
        text = read_regular(file, MIB)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadInputError(file_error(file, error)) from None
    import tomllib  # imported late, because few users have such a file

    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInputError(f"{file} is not valid TOML: {error}.") from None
    except RecursionError:
        raise BadInputError(f"{file} is nested too deeply.") from None
