from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import pyarrow as pa
from typing_extensions import Buffer, disjoint_base

_RecordT = TypeVar("_RecordT", bound=tuple[Any, ...])

@disjoint_base
class RecordIterator(Iterator[Any]):
    def __iter__(self) -> RecordIterator: ...
    def __next__(self) -> Any: ...

@disjoint_base
class Selection: ...

def schema(columns: Sequence[str] | None = None, *, zero_copy: bool = False) -> pa.Schema: ...
def decode_arrow(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = ...,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    zero_copy: bool = False,
    aborted: Sequence[tuple[int, int] | tuple[int, int, int]] = (),
    include_control: bool = False,
    output_bytes_max: int = 67108864,
    path: object = None,
    position: int = 0,
) -> pa.RecordBatch: ...
@overload
def iter_records(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = ...,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int] | tuple[int, int, int]] = (),
    include_control: bool = False,
    output_bytes_max: int = 67108864,
    path: object = None,
    position: int = 0,
) -> Iterator[tuple[Any, ...]]: ...
@overload
def iter_records(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = ...,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int] | tuple[int, int, int]] = (),
    include_control: bool = False,
    output_bytes_max: int = 67108864,
    path: object = None,
    position: int = 0,
    record_type: type[_RecordT],
) -> Iterator[_RecordT]: ...
def count_records(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = ...,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int] | tuple[int, int, int]] = (),
    include_control: bool = False,
    output_bytes_max: int = 67108864,
    path: object = None,
    position: int = 0,
) -> int: ...
