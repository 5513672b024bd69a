"""Jobs of many ranks: building them from recorded ranks, and the cost of their analysis."""
