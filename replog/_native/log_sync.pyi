from replog._native.log_state import LogState

class LogSync:
    def __init__(self, state: LogState) -> None: ...
