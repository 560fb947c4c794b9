from replog._native.epoch_file import EpochFile
from replog._native.log_state import LogState

class LogStart:
    def __init__(self, state: LogState, epoch_file: EpochFile) -> None: ...
