"""Code in the process of one side: it imports the standard library, numpy, and the side's modules."""
