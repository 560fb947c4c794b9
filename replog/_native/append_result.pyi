from typing import final

@final
class AppendResult:
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int = -1,
        duplicate: bool = False,
    ) -> None: ...
