"""Counts the calls and lines of this file that its trace function sees."""

import collections
import sys

import fathom

seen = collections.Counter()


def trace(frame, event, argument):
    if frame.f_code.co_filename == __file__:
        seen[event] += 1
        return trace
    return None


def work(number):
    fathom.step()
    return number + 1


sys.settrace(trace)
for number in range(100):
    work(number)
after = sys.gettrace()
sys.settrace(None)
print(sorted(seen.items()), after is trace)
