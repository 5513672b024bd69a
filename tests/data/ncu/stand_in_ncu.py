"""A stand-in for ncu: notes how it was called, then does what STAND_IN_NCU says with recorded output.

With --import it prints recorded.csv, which lies beside it, as ncu prints a report.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOGS = {
    "permission": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0.\n==WARNING== No kernels were profiled.\n",
    "never": "==PROF== Connected to process 1 (/usr/bin/python)\n==PROF== Disconnected from process 1\n"
    "==WARNING== No kernels were profiled.\n",
    "fails": "==PROF== Connected to process 1\n==ERROR== The application returned an error code (3).\n"
    "==WARNING== No kernels were profiled.\n",
    "busy": "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
    "(like DCGM) is concurrently collecting profiling data.\n",
    "old": "==ERROR== unrecognised option '--graph-profiling'. Use --help for further details.\n",
    "driver": "==ERROR== Failed to initialize the profiler: LibraryNotLoaded.\n",
    "strange": "==ERROR== The moon is full.\n",
    "silent": "",
}


def main():
    words = sys.argv[1:]
    if "--import" in words:
        sys.stdout.write((HERE / "recorded.csv").read_text())
        return 0
    mode = os.environ.get("STAND_IN_NCU", "good")
    (HERE / "called.json").write_text(json.dumps({"words": words, "raw": os.environ.get("FATHOM_RAW")}))
    log = Path(words[words.index("--log-file") + 1])
    program = words[words.index("--log-file") + 2 :]
    if mode in LOGS:
        log.write_text(LOGS[mode])
        return 1
    subprocess.run(program, check=False)
    log.write_text("==PROF== Report: kernel.ncu-rep\n")
    Path(words[words.index("--export") + 1]).write_bytes(b"NVR\0recorded" if mode == "good" else b"")
    return 0


sys.exit(main())
