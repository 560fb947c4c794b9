"""Lines of a stream as they arrive. Whoever takes them hears of pauses, and of a signal to end.

So lines that wait to become a batch neither wait for long nor are lost with the process.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_BYTES = 1 << 16
PAUSE_S = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ArrivingLines:
    """Iterates over lines with their newlines, and None where none has come for a while.

    As a context manager: SIGINT or SIGTERM ends the lines, as the end of the stream does, and is
    then in `stopped_by`; a second one does what it always does. An unfinished line is left out.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stopped_by: int | None = None
        self._stream = stream
        self._handlers = dict.fromkeys(SIGNALS, signal.SIG_DFL)
        self._stopped, self._stop = -1, -1

    def __enter__(self) -> Self:
        self._stopped, self._stop = os.pipe()
        for number in SIGNALS:
            self._handlers[number] = signal.signal(number, self._end)  # type: ignore[assignment]
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._stopped)
        os.close(self._stop)

    def _end(self, number: int, _: FrameType | None) -> None:
        self.stopped_by = number
        signal.signal(number, self._handlers[signal.Signals(number)])
        os.write(self._stop, b"!")

    def __iter__(self) -> Iterator[bytes | None]:
        try:
            source = self._stream.fileno()
        except OSError:  # io.UnsupportedOperation: of no file, so that nothing can be late
            yield from self._stream
            return
        unfinished: list[bytes] = []
        due_s: float | None = None
        """When the lines since the last None have waited for long enough."""
        while True:
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            ready, _, _ = select.select([source, self._stopped], [], [], wait_s)
            if source not in ready:
                if ready:
                    return
                due_s = None
                yield None
                continue
            # Also behind a signal, once: what a pipe holds was given before it.
            content = os.read(source, READ_BYTES)
            if not content:
                break
            if due_s is None:
                due_s = time.monotonic() + PAUSE_S
            *lines, rest = content.split(b"\n")
            for line in lines:
                yield b"".join(unfinished) + line + b"\n"
                unfinished.clear()
            unfinished.append(rest)
            if self._stopped in ready:
                return
        if last := b"".join(unfinished):
            yield last
