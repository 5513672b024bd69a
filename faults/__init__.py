"""Programs and kernels with a known fault, their mended forms, and the score of the diagnosis on them."""
