from replog._native.log_state import LogState

SNAPSHOT_INTERVAL_BYTES: int

class LogProducers:
    def __init__(self, state: LogState) -> None: ...
