from replog._native.log_producers import LogProducers
from replog._native.log_start import LogStart
from replog._native.log_state import LogState
from replog._native.log_writer import LogWriter
from replog._native.retired_files import RetiredFiles

class LogRetention:
    def __init__(
        self,
        state: LogState,
        producers: LogProducers,
        start: LogStart,
        writer: LogWriter,
        retired: RetiredFiles,
    ) -> None: ...
