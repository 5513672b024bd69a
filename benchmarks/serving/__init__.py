"""Servers under load: a tiny model, a client that times each request, and faults planted in the server."""
