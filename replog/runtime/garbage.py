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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Nobody looks for garbage until the end of this block, which must not wait for anything."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
