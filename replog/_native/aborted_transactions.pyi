from replog._native.log_producers import LogProducers
from replog._native.log_state import LogState

class AbortedTransactions:
    def __init__(self, state: LogState, producers: LogProducers) -> None: ...
