from replog._native.log_cut import LogCut
from replog._native.log_state import LogState
from replog._native.log_writer import LogWriter

class LogFollower:
    def __init__(self, state: LogState, cut: LogCut, writer: LogWriter) -> None: ...
