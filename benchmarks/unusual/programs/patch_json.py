"""Replaces `json.dumps` by a function that counts its calls."""

import json
import sys

from state import report

import fathom

calls = []
json.dumps = lambda *args, **kwargs: calls.append(args) or "{}"
for _ in range(200):
    fathom.step()
print(len(calls), file=sys.stderr)
report()
