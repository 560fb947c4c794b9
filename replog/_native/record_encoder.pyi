from typing import Any

from typing_extensions import Buffer

def encode(
    values: Any,
    keys: Any = None,
    timestamps: Any = None,
    headers: Any = None,
    *,
    now_ms: int,
    codec: int = 0,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
    batch_bytes_max: int | None = None,
) -> bytes: ...
def encode_control(
    control_type: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes: ...
def recode(
    batch: Buffer, codec: int, level: int | None = None, output_bytes_max: int = 67108864
) -> Buffer: ...
