from replog._native.log_state import LogState

class EpochFile:
    def __init__(self, state: LogState) -> None: ...
