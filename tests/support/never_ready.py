"""A process that never listens: `python -m support.never_ready FD`, as a supervisor starts it."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    print("it takes its time", flush=True)
    os.read(int(sys.argv[1]), 1 << 16)  # what it is to run
    os.read(int(sys.argv[1]), 1 << 16)  # until the supervisor has ended
