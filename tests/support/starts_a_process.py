"""What a machine may do: it starts a process that outlives it, writes the number of that one, and waits."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1e6)"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    print(child.pid, flush=True)
    time.sleep(1e6)
