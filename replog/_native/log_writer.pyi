from replog._native.epoch_file import EpochFile
from replog._native.log_cut import LogCut
from replog._native.log_producers import LogProducers
from replog._native.log_state import LogState
from replog._native.log_sync import LogSync
from replog._native.segment_maker import SegmentMaker

CODECS: dict[str, int]

class LogWriter:
    def __init__(
        self,
        state: LogState,
        maker: SegmentMaker,
        epoch_file: EpochFile,
        producers: LogProducers,
        sync: LogSync,
        cut: LogCut,
    ) -> None: ...
