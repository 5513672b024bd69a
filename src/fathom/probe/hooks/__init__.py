"""The probe's hooks in the program. Each module installs its own through `Patches`.

`install` imports torch's modules, so it is imported only after torch.
"""
