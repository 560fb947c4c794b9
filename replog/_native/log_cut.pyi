from replog._native.epoch_file import EpochFile
from replog._native.log_producers import LogProducers
from replog._native.log_start import LogStart
from replog._native.log_state import LogState
from replog._native.log_sync import LogSync
from replog._native.retired_files import RetiredFiles
from replog._native.segment_maker import SegmentMaker

class LogCut:
    def __init__(
        self,
        state: LogState,
        maker: SegmentMaker,
        epoch_file: EpochFile,
        producers: LogProducers,
        sync: LogSync,
        start: LogStart,
        retired: RetiredFiles,
    ) -> None: ...
