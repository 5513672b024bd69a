"""Is run by `python -I -S -E`.

Arguments: -I -S -E"""

import os
import sys

print(sorted(os.environ), sys.path, sys.flags)
sys.exit(9)
