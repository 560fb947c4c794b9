from collections.abc import Callable

from replog._native.log_state import LogState

class SegmentMaker:
    def __init__(self, state: LogState, jitter: Callable[[int], int] | None) -> None: ...
