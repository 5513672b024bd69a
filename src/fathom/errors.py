"""Errors shown to users. Each message is one sentence: what is wrong, and what to do."""


class FathomError(Exception):
    """Base of every error that Fathom raises on purpose; the command line prints it without a traceback."""


class BadInputError(FathomError):
    """A file or an argument cannot be used as given."""


class NotASoundingError(FathomError):
    """The path contains no sounding that this version can read."""
