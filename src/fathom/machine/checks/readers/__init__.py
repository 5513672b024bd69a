"""The readers of checks; importing this package imports every module in it, which registers its readers."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
