"""What stands in the index files of a log that was closed, read by a parser of our own."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path

from tests.faults.finding import require
from tests.faults.model import State

TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY = struct.Struct(">ii")


def check_indexes(directory: str, state: State) -> None:
    """Entries grow, and each is true of a batch: as brokers of Kafka's find them without asking."""
    stamps = {batch.last_offset: batch.max_timestamp for batch in state.batches}
    for name in os.listdir(directory):
        stem, _, suffix = name.partition(".")
        if suffix not in ("index", "timeindex") or not Path(directory, f"{stem}.log").exists():
            continue  # what is left of a segment that is gone, the next open takes away
        base_offset, content = int(stem), Path(directory, name).read_bytes()
        if suffix == "index":
            places = list(OFFSET_ENTRY.iter_unpack(content))
            grow = all(a < b and p < q for (a, p), (b, q) in itertools.pairwise(places))
            require(grow, "index", f"{name}: {places}")
            last_offsets = [base_offset + relative for relative, _ in places]
            known = all(offset in stamps for offset in last_offsets if offset >= state.start)
        else:
            times = list(TIME_ENTRY.iter_unpack(content))
            grow = all(s < t and a <= b for (s, a), (t, b) in itertools.pairwise(times))
            require(grow, "index", f"{name}: {times}")
            known = all(
                stamps.get(base_offset + relative) == stamp
                for stamp, relative in times
                if base_offset + relative >= state.start
            )
        require(known, "index", f"{name}: {content.hex()} of {stamps}")
