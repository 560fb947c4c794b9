from collections.abc import Callable, Iterable

from replog._native.log import Log
from replog._native.segment_recovery import RecoveryReport as RecoveryReport

def begin(log: Log, *, high_watermark: int | None = None, now_ms: int) -> RecoveryReport: ...
def load(
    log: Log,
    *,
    clean: bool,
    keeps_whole: bool = False,
    holes: bool = False,
    adopts: bool = False,
    recovery_point: int = 0,
    log_start_offset: int | None = None,
    epoch_entries: Iterable[tuple[int, int]] | None = None,
    high_watermark: int | None = None,
    now_ms: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> RecoveryReport: ...
