"""Where the probe listens in the program. Each module installs its own hooks through `Patches`."""

from fathom.probe.hooks.install import install, remove

__all__ = ["install", "remove"]
