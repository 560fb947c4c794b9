from typing import Any

import pyarrow as pa
from replog._native.log_segment import LogSegment
from replog._native.transaction_index import AbortedTransaction

class LogSlice:
    start_offset: int
    segment_base_offset: int
    position: int
    size_bytes: int
    first_batch_incomplete: bool
    path: str
    @property
    def end_offset(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def to_arrow(
        self,
        *,
        end_offset: int = ...,
        columns: Any = None,
        zero_copy: bool = False,
        **options: Any,
    ) -> pa.RecordBatch: ...
    def records(self, *, end_offset: int = ..., **options: Any) -> Any: ...

class ReadableLog:
    path: str
    segments: tuple[LogSegment, ...]
    log_start_offset: int
    log_end_offset: int
    @property
    def high_watermark(self) -> int: ...
    @property
    def follows_high_watermark(self) -> bool: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def active_segment(self) -> LogSegment: ...
    @property
    def size_bytes(self) -> int: ...
    def read(
        self,
        start_offset: int,
        max_bytes: int = 1048576,
        *,
        end_offset: int | None = None,
        min_one_message: bool = True,
    ) -> LogSlice: ...
    def empty_slice(self, start_offset: int) -> LogSlice: ...
    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None: ...
    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None: ...
    def aborted_transactions(
        self, start_offset: int, end_offset: int
    ) -> list[AbortedTransaction]: ...
