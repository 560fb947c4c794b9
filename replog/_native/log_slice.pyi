from typing import Any

import pyarrow as pa

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
    def epoch_before(self, end_offset: int) -> int: ...
    def to_arrow(
        self,
        *,
        end_offset: int = ...,
        columns: Any = None,
        zero_copy: bool = False,
        **options: Any,
    ) -> pa.RecordBatch: ...
    def records(self, *, end_offset: int = ..., **options: Any) -> Any: ...
