from typing import NamedTuple

class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int
