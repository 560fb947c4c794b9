"""Threads in one `replog.LogDirectory`: partitions come and go while others are written."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import replog
from replog import errors
from replog.config import LogConfig
from replog.types import Isolation, TopicPartition
from tests.shake.records import Tag, tag_of, value_of
from tests.threads.workers import Act, Round, Worker, expect

TOLERATED = (errors.UsageError, errors.LogClosedError, errors.OffsetError)
"""A partition that is gone, or there already."""
PARTITIONS = 6
SENDS_CHECKED_MAX = 2000


class DirectoryWork:
    """One log directory, for a number of rounds."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._path = directory / "logs"
        self._config = LogConfig(
            segment_bytes=self._chance.choice((4096, 1 << 20)),
            index_interval_bytes=300,
            file_delete_delay_ms=0,
            flush_mode=self._chance.choice(("os", "commit")),
        )
        self._directory = self._open()
        self._sends = itertools.count()
        self.calls = 0
        self.refusals: dict[str, int] = {}

    def _open(self) -> replog.LogDirectory:
        return replog.LogDirectory.open(self._path, self._config)

    def round(self, seconds: float) -> None:
        roles = [
            *[self.append] * 3, self.create, self.delete, self.checkpoint, self.look, self.read,
        ]  # fmt: skip
        played = Round(self._chance, TOLERATED)
        for role in roles:
            played.add(role)
        if self._chance.random() < 0.2:
            played.add(self.close)
        acts = played.play(seconds)
        self.calls += len(acts)
        for name, count in played.refusals.items():
            self.refusals[name] = self.refusals.get(name, 0) + count
        if self._directory.closed or self._chance.random() < 0.3:
            if self._chance.random() < 0.5:
                self._directory.close()
            else:
                self._directory.abandon()
            self._directory = self._open()
        expect(not self._directory.refused, f"refused: {self._directory.refused}")
        self._check(acts)

    def end(self) -> None:
        self._directory.close()

    def _check(self, acts: list[Act]) -> None:
        """What was answered of a partition that nobody deleted since is there, once."""
        deleted = [act for act in acts if act.kind in {"delete", "failed delete"}]
        contents = {}
        for name in self._directory:
            log = self._directory.partition_log(name)
            expect(log.synced_end_offset <= log.log_end_offset, f"{name}: synced past the end")
            records = log.records(isolation=Isolation.LOG_END)
            contents[name] = {record.offset: tag_of(record.value) for record in records}
            held = list(contents[name].values())
            expect(len(set(held)) == len(held) and None not in held, f"{name}: a record twice")
            ends = (log.log_start_offset, log.log_end_offset)
            expect(list(contents[name]) == list(range(*ends)), f"{name}: offsets are not dense")
        for act in (act for act in acts if act.kind == "append"):
            answer, name, send = act.facts
            if any(each.facts[1] == name and each.ended > act.began for each in deleted):
                continue
            tag = Tag(self._seed, send, 0)
            found = contents.get(name, {}).get(answer.base_offset)
            expect(found == tag, f"{name}: {tag} was answered {answer.base_offset}, found {found}")

    def _name(self, worker: Worker) -> TopicPartition:
        return TopicPartition("topic", worker.chance.randrange(PARTITIONS))

    def append(self, worker: Worker) -> None:
        name, send = self._name(worker), next(self._sends)
        value = value_of(Tag(self._seed, send, 0))
        worker.act("append", lambda: self._directory[name].append([value]), name, send)

    def create(self, worker: Worker) -> None:
        name = self._name(worker)
        worker.act("create", lambda: self._directory.create_partition(*name), name)

    def delete(self, worker: Worker) -> None:
        name = self._name(worker)
        verbs: list[Callable[[TopicPartition], object]]
        verbs = [self._directory.delete_partition, self._directory.set_aside]
        verb = worker.chance.choice(verbs)
        if worker.chance.random() < 0.3:
            worker.act("delete", lambda: verb(name), name)
        worker.act("remove", self._directory.remove_deleted)

    def checkpoint(self, worker: Worker) -> None:
        directory, name = self._directory, self._name(worker)
        verb = worker.chance.choice(
            (
                directory.checkpoint_high_watermarks,
                directory.checkpoint_log_start_offsets,
                directory.checkpoint_recovery_points,
                directory.partition_log(name).checkpoint,
                directory.partition_log(name).flush,
            )
        )
        worker.act("checkpoint", verb)

    def look(self, worker: Worker) -> None:
        directory = self._directory
        name = self._name(worker)
        verb = worker.chance.choice(
            (
                lambda: (list(directory), len(directory), name in directory, repr(directory)),
                lambda: (directory.failed, directory.strays, directory.topic_partitions),
                lambda: directory[name].size_bytes,
            )
        )
        worker.act("look", verb)

    def read(self, worker: Worker) -> None:
        log = self._directory[self._name(worker)]
        start = worker.chance.randint(0, log.log_end_offset)
        for record in itertools.islice(log.records(start), 50):
            expect(tag_of(record.value) is not None, f"no record of ours: {record}")
        worker.act("read", lambda: None)

    def close(self, worker: Worker) -> None:
        if worker.chance.random() < 0.01:
            worker.act("close", self._directory.close)
        else:
            self.look(worker)
