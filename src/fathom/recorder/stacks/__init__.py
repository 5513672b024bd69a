"""Sample the stacks of the thread that runs the steps, from outside the program."""

from fathom.recorder.stacks.codes import Codes, Walker, line_table
from fathom.recorder.stacks.sampler import StackSampler, rehearse, why_no_stacks
