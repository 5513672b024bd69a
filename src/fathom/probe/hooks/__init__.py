"""Where the probe listens in the program. Each module installs its own hooks through `Patches`.

`install` imports torch's modules: it is imported where torch was, and not before.
"""
