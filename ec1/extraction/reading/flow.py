"""How many requests may be out at once: what the server takes, learned from what it refuses and what it leaves.

Belongs here: the limit and the waiting for it. Does not: what a refusal looks like on the wire (`client.py`).

Additive increase, multiplicative decrease, as TCP does it (Chiu and Jain 1989): the limit doubles until the first
refusal, then grows slowly; a refusal takes it down to what the server was serving, which is better than half of it
where that is known. So a server of two slots gets two requests, and a third one now and then to see whether it grew.

A server that refuses nothing has a queue, and what waits in it too long is lost. Requests in flight are the rate of
answers times the time that one takes (Little 1961): one that was out of time takes the limit down to what the server
gets done in half that time.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# After the first refusal the limit grows by one within about so many times itself answers.
_ANSWERS_PER_STEP = 8
# Of the time that a request may take, what it is to take: the rest is for answers that are longer than others.
_EXPECTED = 0.5
# The rate is that of so many last answers.
_REMEMBERED = 256


class Flow:
    """The limit on requests in flight: between 1 and `most`, `start` at first."""

    def __init__(self, most: int, start: int) -> None:
        self.most = most
        self.limit = float(min(start, most))
        self.in_flight = 0
        self._refused = False
        self._changed = asyncio.Condition()
        self._answered: deque[float] = deque(maxlen=_REMEMBERED)

    def begin(self) -> None:
        """Serve another event loop; what was learned stays."""
        self.in_flight = 0
        self._changed = asyncio.Condition()
        self._answered.clear()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait until one more request may go out; it counts until the block ends. Yields the limit that let it.
        Cancelling gives the place back."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.in_flight < int(self.limit))
            self.in_flight += 1
        if not self._answered:
            self._answered.append(time.monotonic())
        try:
            yield self.limit
        finally:
            self.in_flight -= 1
            await self._tell()

    def served(self) -> None:
        """A request was answered: the server may take more."""
        self._answered.append(time.monotonic())
        step = 1.0 / (_ANSWERS_PER_STEP * self.limit) if self._refused else 1.0
        self.limit = min(float(self.most), self.limit + step)

    def late(self, limit: float, allowed: float) -> bool:
        """A request that this limit let out was still out after so many seconds. Returns whether there were too many:
        the limit is then what the server gets done in good time, or half of what is out where it answered none."""
        if limit <= self.limit:
            answers = len(self._answered) - 1
            if answers > 0 and time.monotonic() - self._answered[-1] < allowed:
                # Up to the last of them: it may have had nothing else to do since.
                rate = answers / max(self._answered[-1] - self._answered[0], 1e-9)
                done = max(1.0, rate * _EXPECTED * allowed)
            else:
                done = self.in_flight / 2 if self.in_flight > 1 else self.limit
            if done < self.limit:
                self._refused, self.limit = True, done
        return limit > self.limit

    def refused(self) -> None:
        """A request found no room. The one that was refused is still counted in `in_flight`."""
        self._refused = True
        self.limit = float(max(1, min(int(self.limit), self.in_flight - 1)))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
