"""Rules of the group `numbers`."""
