"""One proof in a sandbox: the pair comes as JSON on standard input, the verdict goes to standard output."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Prove the pair, and print the verdict on the last line."""
    answer = os.dup(1)
    os.dup2(2, 1)  # prints of candidates do not mix with the verdict
    job = json.load(sys.stdin)
    from fathom.errors import BadInputError
    from fathom.referee import Pair, Settings, prove_pair

    try:
        content = prove_pair(Pair(**job["pair"]), Settings(**job["settings"])).to_json()
    except BadInputError as error:
        content = json.dumps({"bad_input": str(error)}).encode()
    os.write(answer, content + b"\n")


if __name__ == "__main__":
    main()
