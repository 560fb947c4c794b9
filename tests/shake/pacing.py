"""How fast clients and troubles follow each other: no event is waited for here, only time."""

from __future__ import annotations

import asyncio


async def pause(seconds: float) -> None:
    """Let others go on for so long; 0 for one turn of the loop."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(seconds, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()
