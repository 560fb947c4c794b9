from collections.abc import Sequence

import pyarrow as pa
from typing_extensions import Buffer, disjoint_base

@disjoint_base
class StretchDecoder:
    next_offset: int
    last_size_bytes: int
    def __init__(
        self,
        next_offset: int,
        leader_epoch: int,
        *,
        columns: Sequence[str] | None = None,
        start_offset: int = 0,
        end_offset: int = ...,
        upper_offset: int = ...,
        check_crc: bool = True,
        proven: bool = True,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def feed(self, piece: Buffer, *, rows_enough: int, bytes_enough: int) -> int | None: ...
    def take(self) -> pa.RecordBatch: ...
