"""Counts every event that its profile function sees."""

import collections
import sys

from state import report

import fathom

report()
seen = collections.Counter()


def profile(frame, event, argument):
    seen[event] += 1


def work(number):
    return sum([number, 1])


fathom.step()
sys.setprofile(profile)
for number in range(100):
    work(number)
    fathom.step()
sys.setprofile(None)
print(sorted(seen.items()))
report()
