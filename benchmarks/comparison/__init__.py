"""How right `fathom compare` and `fathom gate` are."""
