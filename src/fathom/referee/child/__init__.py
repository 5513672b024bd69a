"""What runs in the process of one side: standard library, numpy, and what the side itself imports."""
