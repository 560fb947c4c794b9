from collections.abc import Callable
from typing import Any

from replog._native.segment_list import SegmentList
from replog.config import LogConfig

class LogState:
    path: str
    config: LogConfig
    keeper: Any
    segments: SegmentList
    log_start_offset: int
    log_end_offset: int
    written_epoch: int
    def __init__(
        self, path: str, config: LogConfig, keeper: Any, clock: Callable[[], int]
    ) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def epoch_text(self) -> bytes: ...
    @property
    def synced_end_offset(self) -> int: ...
