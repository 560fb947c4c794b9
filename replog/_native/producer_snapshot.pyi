from typing import NamedTuple

class ProducerEntry(NamedTuple):
    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

def read_snapshot(content: bytes, path: str | None = None) -> list[ProducerEntry]: ...
