"""How many requests may be out at once: what the server takes, learned from what it refuses.

Belongs here: the limit and the waiting for it. Does not: what a refusal looks like on the wire (`client.py`).

Additive increase, multiplicative decrease, as TCP does it (Chiu and Jain 1989): the limit doubles until the first
refusal, then grows slowly; a refusal takes it down to what the server was serving, which is better than half of it
where that is known. So a server of two slots gets two requests, and a third one now and then to see whether it grew.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# After the first refusal the limit grows by one within about so many times itself answers.
_ANSWERS_PER_STEP = 8


class Flow:
    """The limit on requests in flight: between 1 and `most`, `start` at first."""

    def __init__(self, most: int, start: int) -> None:
        self.most = most
        self.limit = float(min(start, most))
        self.in_flight = 0
        self._refused = False
        self._changed = asyncio.Condition()

    def begin(self) -> None:
        """Serve another event loop; what was learned stays."""
        self.in_flight = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one more request may go out; it counts until the block ends. Cancelling gives the place back."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.in_flight < int(self.limit))
            self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            await self._tell()

    def served(self) -> None:
        """A request was answered: the server may take more."""
        step = 1.0 / (_ANSWERS_PER_STEP * self.limit) if self._refused else 1.0
        self.limit = min(float(self.most), self.limit + step)

    def refused(self) -> None:
        """A request found no room. The one that was refused is still counted in `in_flight`."""
        self._refused = True
        self.limit = float(max(1, min(int(self.limit), self.in_flight - 1)))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
