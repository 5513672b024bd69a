"""Forks; both processes go on with their steps."""

import os
import random
import sys

from state import report

import fathom

for _ in range(40):
    fathom.step()
child = os.fork()
for _ in range(40):
    fathom.step()
if not child:
    random.seed(7)
    report()
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
