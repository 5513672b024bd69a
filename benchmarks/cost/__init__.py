"""What Fathom costs: a program that is recorded its time and memory, and whoever imports a trace theirs."""
