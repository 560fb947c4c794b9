"""A log of small segments, its records, its next process, and a thread beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replog._native import record_encoder, recorded_calls
from replog.config import LogConfig
from replog.storage.partition_log import PartitionLog

NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=100, file_delete_delay_ms=0)
COMMIT = LogConfig(segment_bytes=4096, index_interval_bytes=100, flush_mode="commit")
VALUE = b"value" * 10


def opened(folder: Path, config: LogConfig = CONFIG) -> Any:
    return PartitionLog.open(folder / "t-0", config, now_ms=lambda: NOW_MS)


def killed(log: Any, folder: Path, config: LogConfig = CONFIG) -> Any:
    """The log as the next process finds it."""
    recorded_calls.clear_faults()
    log.close(flush=False)
    return opened(folder, config)


def append(log: Any, count: int = 1, epoch: int = 0) -> None:
    for _ in range(count):
        batch = record_encoder.encode([VALUE], timestamps=NOW_MS, now_ms=NOW_MS)
        log.append_as_leader(batch, epoch)


def offsets(log: Any) -> list[int]:
    return [record.offset for record in log.records()]


def fill_segment(log: Any) -> None:
    """Append until one more batch would roll."""
    while log.segments[-1].size_bytes < 4096 - 150:
        append(log)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised
