"""A real broker on a log directory that replog wrote, read by Kafka's consumer, and handed back.

The broker makes the topics, so that names and topic ids are its own, and stops. replog opens the
whole log directory and fills every partition. The broker starts on it again and serves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replog import Isolation, LogConfig, LogDirectory, TopicPartition
from replog.storage.partition_log import PartitionLog
from tests.fixtures.cases import Row
from tests.fixtures.rows import rows_of_arrow
from tests.judge.kafka import Broker, Judge
from tests.judge.written import KINDS, fill

pytestmark = pytest.mark.java

# Epochs above the broker's own would make it cut them off; these kinds stay at 0 and 1.
TOPICS = sorted(KINDS.keys() - {"many-epochs", "recovered", "replicated"})
PRODUCED = 12


def configs() -> dict[str, LogConfig]:
    return {topic: KINDS[topic].config for topic in TOPICS}


def opened(broker: Broker) -> LogDirectory:
    return LogDirectory.open(broker.log_directory, configs=configs())


def rows_of(log: PartitionLog, isolation: Isolation) -> list[Row]:
    return rows_of_arrow(*log.topic_partition, log.to_arrow(isolation=isolation))


@pytest.fixture(scope="module")
def written(
    classes: str, judge: Judge, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, dict[str, Any]]]:
    """A running broker on partitions that replog wrote, and what replog says of each."""
    broker = Broker(classes, tmp_path_factory.mktemp("broker"))
    said: dict[str, Any] = {}
    try:
        broker.start()
        topics = {topic: KINDS[topic].topic_config() for topic in TOPICS}
        judge.ask("create_topics", bootstrap=broker.bootstrap, topics=topics)
        judge.ask("await_leaders", bootstrap=broker.bootstrap, topics=TOPICS)
        broker.stop()
        with opened(broker) as directory:
            assert not directory.refused
            for topic in TOPICS:
                log = directory.partition_log(TopicPartition(topic, 0))
                KINDS[topic].write(log, Path(log.path))
                log.high_watermark = log.log_end_offset
                said[topic] = {
                    "start": log.log_start_offset,
                    "end": log.log_end_offset,
                    "stable": log.last_stable_offset,
                    "read_uncommitted": rows_of(log, Isolation.LOG_END),
                    "read_committed": rows_of(log, Isolation.TXN_COMMITTED),
                }
        broker.start()
        judge.ask("await_leaders", bootstrap=broker.bootstrap, topics=TOPICS)
        yield broker, said
    finally:
        broker.stop()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("topic", TOPICS)
def test_kafkas_consumer_gets_the_rows_that_replog_gives(
    judge: Judge, written: Any, topic: str, isolation: str, tmp_path: Path
) -> None:
    broker, said = written
    counts = judge.ask(
        "consume",
        bootstrap=broker.bootstrap,
        topic=topic,
        isolation=isolation,
        out=tmp_path / "rows",
    )
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert rows == said[topic][isolation]
    end = said[topic]["stable" if isolation == "read_committed" else "end"]
    assert (counts["start"], counts["end"]) == (said[topic]["start"], end)


@pytest.mark.parametrize("topic", TOPICS)
def test_the_broker_finds_offsets_by_time_in_replogs_indexes(
    judge: Judge, written: Any, topic: str
) -> None:
    broker, said = written
    rows = said[topic]["read_uncommitted"]
    for row in rows[:: max(1, len(rows) // 4)]:
        asked = row["timestamp"]
        found = judge.ask("offset_for", bootstrap=broker.bootstrap, topic=topic, timestamp=asked)
        first = next(other for other in rows if other["timestamp"] >= asked)
        assert found["offset"] == first["offset"]


def test_replog_goes_on_behind_what_kafka_wrote_behind_it(judge: Judge, written: Any) -> None:
    """Last of the module: it stops the broker. Each engine appends to the other's files in turn."""
    broker, said = written
    topic = "several-epochs"
    first = judge.ask("produce", bootstrap=broker.bootstrap, topic=topic, count=PRODUCED)
    assert first == said[topic]["end"]
    broker.stop()
    with opened(broker) as directory:
        assert not directory.refused
        log = directory.partition_log(TopicPartition(topic, 0))
        rows = rows_of(log, Isolation.LOG_END)
        assert rows[: len(said[topic]["read_uncommitted"])] == said[topic]["read_uncommitted"]
        assert len(rows) == len(said[topic]["read_uncommitted"]) + PRODUCED
        fill(log, [3, 20, 1], leader_epoch=log.latest_epoch)
        end = log.log_end_offset
    broker.start()
    judge.ask("await_leaders", bootstrap=broker.bootstrap, topics=[topic])
    again = judge.ask("offset_for", bootstrap=broker.bootstrap, topic=topic, timestamp=-1)
    assert again["offset"] == end
