"""Record the example on this machine and read its report; then read what was recorded on bigger ones."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(os.path.relpath(Path(__file__).parent))
RECORDED = Path("out", "demo.fathom")
KEPT = (".fathom", ".zip")


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def fathom(*words: object) -> None:
    """Run one `fathom` command as a user would, and stop if it fails."""
    arguments = [str(word) for word in words]
    print(f"$ fathom {shlex.join(arguments)}", flush=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # `python` is this one
    environment = {**os.environ, "PATH": path}
    status = subprocess.run([sys.executable, "-m", "fathom", *arguments], env=environment).returncode
    if status:
        sys.exit(status)


def main() -> None:
    RECORDED.parent.mkdir(exist_ok=True)
    say("A program that has never heard of Fathom, recorded on this machine")
    fathom("run", "--quiet", "--replace", "-o", RECORDED, "--", "python", HERE / "train_gpt.py")
    fathom("report", RECORDED)
    kept = sorted(file for file in (HERE / "soundings").glob("*") if file.suffix in KEPT)
    if not kept:
        say("No sounding of another machine is kept in examples/soundings yet.")
    for sounding in kept:
        say("A recording from another machine, opened here")
        fathom("report", sounding)
    say("Look further")
    largest = "SELECT entry, detail, ms FROM ledger ORDER BY ms DESC LIMIT 5"
    for words in (["report", str(RECORDED), "--all"], ["query", str(RECORDED), largest], ["doctor"]):
        print(f"$ fathom {shlex.join(words)}")


if __name__ == "__main__":
    main()
