"""Has an import hook that prints the names that it is asked for."""

import sys

import fathom

asked = []


class Finder:
    def find_spec(self, name, path=None, target=None):
        asked.append(name)
        return


import colorsys

sys.meta_path.insert(0, Finder())
try:
    import no_such_module
except ImportError as error:
    print(error)
for _ in range(50):
    fathom.step()
import sndhdr
import wave

print([name for name in asked if name.partition(".")[0] not in sys.stdlib_module_names])
