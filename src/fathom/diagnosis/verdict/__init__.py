"""What bounds the step, and the account from the machine's measured peak down to the step as it is."""

from fathom.diagnosis.verdict.conclude import conclude
from fathom.diagnosis.verdict.limited import limited_of

__all__ = ["conclude", "limited_of"]
