"""The page of `fathom report --html` in a browser."""
