"""Replaces `open`, `print` and `__import__`."""

import builtins
import sys

from state import report

import fathom

report()
imported, opened, original = [], [], (builtins.__import__, builtins.open)


def watched(name, *args, **kwargs):
    if (
        not name.startswith(("fathom", "json", "encodings"))
        and args
        and args[0].get("__name__") == "__main__"
    ):
        imported.append(name)
    return original[0](name, *args, **kwargs)


builtins.__import__, builtins.open = watched, lambda *args, **_: opened.append(args)
for _ in range(60):
    fathom.step()
import colorsys

builtins.__import__, builtins.open = original
print(imported, opened, file=sys.stderr)
