"""A module that starts a thread when it is imported, as some do."""

from __future__ import annotations

import time
from threading import Thread

Thread(target=time.sleep, args=(1e6,), daemon=True).start()
