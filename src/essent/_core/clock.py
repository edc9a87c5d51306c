"""The clock of plans and estimates; tests replace it with that of a faster or slower machine."""

from __future__ import annotations

import time

elapsed = time.perf_counter  # seconds
