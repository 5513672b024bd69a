"""One burst's samples on disk: all starts, all ends (uint64), then the values (float32), row by row."""

from __future__ import annotations

import sys
import zlib
from array import array

from fathom.probe.counters.collector import Chunk
from fathom.probe.whole import whole


class Samples:
    """Collects the complete samples of one burst in the compact form of the file."""

    def __init__(self) -> None:
        self.starts, self.ends, self.values = array("Q"), array("Q"), array("f")
        self.populated = 0
        self.active = 0.0  # samples, counted as if all multiprocessors were busy in each

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, chunk: Chunk) -> None:
        """Add samples that were read together."""
        self.populated += chunk.populated
        self.starts.extend(chunk.starts)
        self.ends.extend(chunk.ends)
        for row in chunk.values:
            self.values.extend(row)
            self.active += max(0.0, row[0]) / 100  # each group begins with an anchor, in percent

    def write(self, path: str) -> int:
        """Write the file atomically in little-endian order; return its CRC-32."""
        check = 0
        with whole(path) as part, open(part, "wb") as file:
            for column in (self.starts, self.ends, self.values):
                if sys.byteorder == "big":
                    column.byteswap()
                data = column.tobytes()
                check = zlib.crc32(data, check)
                file.write(data)
        return check
