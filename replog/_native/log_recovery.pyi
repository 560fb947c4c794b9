from collections.abc import Callable, Iterable

from replog._native.log import Log

class RecoveryReport:
    clean: bool
    checked_bytes: int
    checked_segments: int
    cut_bytes: int
    problem: str | None
    kept: list[str]
    removed: list[str]
    def __init__(self, clean: bool) -> None: ...

def begin(log: Log, *, high_watermark: int | None = None, now_ms: int) -> RecoveryReport: ...
def load(
    log: Log,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
    epoch_entries: Iterable[tuple[int, int]] | None = None,
    high_watermark: int | None = None,
    now_ms: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> RecoveryReport: ...
