"""The verdict on what bounds the step, and the account from the machine's peak down to the step."""

from fathom.diagnosis.verdict.conclude import conclude, limited_of
