"""Clocks for plans and estimates; tests replace them by those of a faster or slower machine."""

from __future__ import annotations

import time

elapsed = time.perf_counter  # seconds
processor = time.process_time  # CPU seconds of this process, over all cores
