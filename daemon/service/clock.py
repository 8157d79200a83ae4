"""The clocks of this machine."""

from __future__ import annotations

import time


class SystemClock:
    """The `Clock` of a service that really runs."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
