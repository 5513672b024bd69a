"""Published figures of chips as data files: each with its source, dense rates, per direction."""

from fathom.machine.datasheet.sheets import Figure, Sheet, beside, find, find_host
