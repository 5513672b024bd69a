"""What bounds the step, and the account from the machine's measured peak down to the step as it is."""

from fathom.diagnosis.verdict.conclude import conclude

__all__ = ["conclude"]
