from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class BatchCursor:
    source: Any
    path: Any
    def __init__(
        self,
        source: Any,
        start_offset: int,
        end_offset: int,
        check_crc: bool,
        aborted: Any,
        include_control: bool,
        output_bytes_max: int,
        path: Any,
        position: int,
    ) -> None: ...
