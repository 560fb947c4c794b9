from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import Buffer

from replog._native.append_result import AppendResult
from replog._native.readable_log import ReadableLog
from replog.config import LogConfig

CODECS: dict[str, int]
SNAPSHOT_INTERVAL_BYTES: int

class AppendableLog(ReadableLog):
    config: LogConfig
    keeper: Any
    written_epoch: int
    def __init__(
        self,
        path: str,
        config: LogConfig,
        keeper: Any,
        *,
        clock: Callable[[], int],
        jitter: Callable[[int], int] | None = None,
    ) -> None: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def synced_end_offset(self) -> int: ...
    def append_as_leader(
        self,
        batches: Buffer,
        leader_epoch: int,
        *,
        now_ms: int | None = None,
        coordinator: bool = False,
    ) -> AppendResult: ...
    def append_parts_as_leader(
        self, parts: Iterable[Buffer], leader_epoch: int, *, now_ms: int | None = None
    ) -> AppendResult: ...
    def roll(self, *, now_ms: int | None = None) -> bool: ...
    def assign_epoch(self, leader_epoch: int, start_offset: int) -> bool: ...
