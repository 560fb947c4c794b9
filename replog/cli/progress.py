"""How far a long command is: one line on a terminal's stderr."""

from __future__ import annotations

import sys


class Progress:
    """One line on a terminal's stderr, written over; nothing anywhere else."""

    def __init__(self) -> None:
        self._visible = sys.stderr.isatty()
        self._shown = False

    def show(self, step: str, done: int, total: int) -> None:
        if self._visible:
            self._shown = True
            sys.stderr.write(f"\r\x1b[K{100 * done // max(total, 1):3d} %  {step}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
