"""`python -m cumulus`, and what `spark-submit` is given: a file whose name ends in .py."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # As a script it would find its own rooms before packages of the same name.
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]
    from cumulus.cli.start import main

    main()
