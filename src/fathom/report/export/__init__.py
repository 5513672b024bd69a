"""Write a sounding in the formats of other tools."""
