"""Python's search for garbage, put off while metadata are turned into objects that stay.

Hundreds of thousands of objects are made that hold each other: each look at all of them would find
nothing, in turns that grow with their number. The search belongs to the whole process, to other
threads and to the program that imports this library, so it is put off for one bounded piece of work
at a time: never across a turn of the loop, and the next object that anybody makes behind it may
start the search that is due by then.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Search:
    """The one of this process. Several loops may put it off at once, each in a thread of its own:
    the last one that is done has to take it up again.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._blocks = 0
        self._is_wanted = True

    def put_off(self) -> None:
        with self._lock:
            if not self._blocks:
                self._is_wanted = gc.isenabled()
                gc.disable()
            self._blocks += 1

    def take_up(self) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._is_wanted:
                gc.enable()


_search = _Search()


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Nobody looks for garbage until the end of this block, which must not wait for anything."""
    _search.put_off()
    try:
        yield
    finally:
        _search.take_up()
