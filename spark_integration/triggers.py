"""How much of what there is one micro-batch takes, shared out over the partitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from replog.reader import PartitionReader
from replog.types import TopicPartition

Offsets = Mapping[TopicPartition, int]


def shares(total_max: int, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """total_max divided in proportion to the sizes, at least 1 each, as Kafka's source does it."""
    total = sum(sizes.values())
    found = {}
    for key, size in sizes.items():
        share = total_max * size / total if total else 0.0
        found[key] = math.ceil(share) if share < 1 else math.floor(share)
    return found


def limit_offsets(offsets_max: int, starts: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
    """Ends that lie about offsets_max behind the starts, all together."""
    sizes = {key: end - starts[key] for key, end in ends.items()}
    limits = shares(offsets_max, {key: size for key, size in sizes.items() if size > 0})
    return {key: starts[key] + min(size, limits.get(key, 0)) for key, size in sizes.items()}


def limit_bytes(
    bytes_max: int,
    readers: Mapping[TopicPartition, PartitionReader],
    starts: Offsets,
    ends: Offsets,
) -> dict[TopicPartition, int]:
    """Ends with about bytes_max of file before them, at batches, at least one batch each."""
    sizes = {
        key: sum(one.size_bytes for one in readers[key].split_points(1 << 62, starts[key], end))
        for key, end in ends.items()
        if end > starts[key] >= readers[key].log_start_offset
    }
    limits = shares(bytes_max, sizes)
    limited = dict(ends)
    for key, size in sizes.items():
        if size > limits[key]:
            limited[key] = _end_within(readers[key], starts[key], ends[key], limits[key])
    return limited


def _end_within(reader: PartitionReader, start: int, end: int, bytes_max: int) -> int:
    """The end of the last batch from `start` on that stays within bytes_max, or of the first.

    The indexes lead near to it; only where they are too coarse are headers walked.
    """
    reached, size = start, 0
    for split in reader.split_points(bytes_max, start, end):
        if size + split.size_bytes > bytes_max:
            break
        reached, size = split.end_offset, size + split.size_bytes
    if reached > start:
        return reached
    for header in itertools.chain.from_iterable(reader.headers(start, end)):
        size += int(header["size_bytes"])
        if size > bytes_max and reached > start:
            break
        reached = min(int(header["last_offset"]) + 1, end)
    return reached
