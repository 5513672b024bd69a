"""Rules of the group `device`."""
