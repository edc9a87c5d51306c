"""Clocks by which plans and estimates time work; tests replace them by those of a faster or slower machine."""

from __future__ import annotations

import time

elapsed = time.perf_counter  # seconds
processor = time.process_time  # seconds of all processors of this process
