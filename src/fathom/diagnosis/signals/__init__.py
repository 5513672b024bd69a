"""Typed signals of one sounding, the only input of rules. Each is read lazily and only once."""

from importlib import import_module
from pkgutil import iter_modules

from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import (
    Broken,
    Call,
    Captured,
    Chain,
    Compiled,
    Computing,
    Dequantised,
    Double,
    DriverCalls,
    Eager,
    Family,
    FetchingCode,
    Holds,
    HostLine,
    HostWork,
    Interpreted,
    Kept,
    LoaderRegions,
    Loop,
    Made,
    Optimizers,
    Prefix,
    Preparation,
    Product,
    Rare,
    Recompiled,
    Repeated,
    Reserved,
    Searches,
    Sensors,
    Skew,
    SmallMessages,
    Stretched,
    Tables,
    Usage,
    Work,
)
from fathom.diagnosis.signals.value import READERS, Signal, Signals

for _module in iter_modules(__path__):  # each registers its signals
    import_module(f"{__name__}.{_module.name}")
