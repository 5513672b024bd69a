"""Makes 100,000 steps that do nothing."""

import fathom

for _ in range(100_000):
    fathom.step()
print("done")
