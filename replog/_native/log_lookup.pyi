from replog._native.log_state import LogState

class LogLookup:
    def __init__(self, state: LogState) -> None: ...
