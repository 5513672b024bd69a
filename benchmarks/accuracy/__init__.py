"""How right it is what Fathom says: of planted delays and faults, and of ceilings measured twice."""
