"""Kafka's DumpLogSegments on a metadata log and a snapshot that replog's quorum wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from replog.wire.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.fixtures.test_dump import dumped
from tests.judge.kafka import Judge
from tests.runtime.quorum_nodes import Members, take_snapshot

pytestmark = pytest.mark.java

TOPIC_ID = bytes(range(16))
RECORDS = [
    TopicRecord(name="orders", topic_id=TOPIC_ID),
    PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4
    ),
    PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1,), leader=-1),
]
_PAYLOAD = re.compile(
    r"^\| offset: (\d+) .*?(?:payload: |headerKeys: \[\] \S+ )(\{.*\})$", re.MULTILINE
)


def files_of(tmp_path: Path) -> tuple[Path, Path]:
    """A segment with every record, and the snapshot that then stood for them."""
    world = Members(tmp_path, voters=(1,))
    world.settle()
    world.propose_records(RECORDS)
    world.settle()
    log = world[1].log
    directory = Path(log.path)
    taken = take_snapshot(log, log.high_watermark, RECORDS)
    log.close()
    segment = directory / f"{0:020d}.log"
    snapshot = directory / f"{taken.end_offset:020d}-{taken.epoch:010d}.checkpoint"
    return segment, snapshot


@pytest.mark.parametrize("which", ["segment", "snapshot"])
def test_kafkas_metadata_decoder_prints_what_replog_dumps(
    judge: Judge, tmp_path: Path, which: str
) -> None:
    segment, snapshot = files_of(tmp_path)
    path = segment if which == "segment" else snapshot
    text = judge.ask("dump", args=["--cluster-metadata-decoder", "--files", str(path)])
    assert "isvalid: false" not in text
    assert "could not" not in text.lower()
    rows, code = dumped(path, "--metadata")
    assert code == 0
    printed = [(int(offset), json.loads(found)) for offset, found in _PAYLOAD.findall(text)]
    assert [offset for offset, _ in printed] == [row["offset"] for row in rows]
    for (_, found), row in zip(printed, rows, strict=True):
        assert found.get("data", found) == row["data"], row  # control records are printed bare
    assert len(rows) == len(RECORDS) + (1 if which == "segment" else 2)
