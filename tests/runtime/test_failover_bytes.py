"""Failover on real logs: a replica dies before each of its effects, and the files are compared.

The script produces, and its effects are counted once. Then it runs again for each count and victim:
the victim dies there, another leads on, the victim returns. Whatever was acknowledged must stand in
all three directories, byte for byte, without asking replog's reader.
"""

from __future__ import annotations

import os

import pytest

from replog._native.record_encoder import encode
from replog.cli.raw_batches import AcknowledgedBatch, compare_replicas, walk
from replog.config import LogConfig
from replog.runtime.effect_executor import EffectExecutor
from replog.runtime.replica_group import ClosableLog, ReplicaGroup
from replog.runtime.replica_log import open_replica_log
from replog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
REPLICAS = (1, 2, 3)
NOW_MS = 1_700_000_000_000


class Died(BaseException):
    """Raised instead of the victim's next effect."""


class DeathRow:
    """Counts the effects of one replica, and stops it before one of them."""

    def __init__(self, victim: int, effects_left: int | None) -> None:
        self.victim = victim
        self.effects_left = effects_left
        self.count = 0

    def arm(self, monkeypatch) -> None:
        carry_out = EffectExecutor._carry_out

        def counted(executor, effect):
            if executor.replica.replica_id == self.victim:
                if self.count == self.effects_left:
                    self.effects_left = None
                    raise Died
                self.count += 1
            return carry_out(executor, effect)

        monkeypatch.setattr(EffectExecutor, "_carry_out", counted)


class Scene:
    """A group on real files, and a producer that remembers what was acknowledged."""

    def __init__(self, root, victim: int) -> None:
        self.directories = {i: str(root / f"replica-{i}" / "orders-0") for i in REPLICAS}
        for directory in self.directories.values():
            os.makedirs(os.path.dirname(directory), exist_ok=True)
        self.victim = victim
        self.sent = []
        self.group = ReplicaGroup(PARTITION, REPLICAS, self.open_log)

    def open_log(self, replica_id: int) -> ClosableLog:
        return open_replica_log(self.directories[replica_id], CONFIG, lambda: NOW_MS)

    def act(self, action, *arguments) -> None:
        """Do one thing; if the victim dies of it, bury it and go on with another leader."""
        try:
            action(*arguments)
        except Died:
            self.group.kill(self.victim)
            self.lead_on()

    def lead_on(self) -> None:
        leader_id = self.group.leader_id or next(i for i in (3, 2) if i in self.group.living)
        self.group.elect(leader_id)

    def produce(self, text: str) -> None:
        batches = encode([f"{text} {number}".encode() for number in range(3)], now_ms=NOW_MS)
        self.sent.append((self.group.produce(batches), bytes(batches)))

    def acknowledged(self) -> list[AcknowledgedBatch]:
        found = []
        for ticket, batches in self.sent:
            if ticket.acknowledged:
                [batch] = walk(batches)
                found.append(AcknowledgedBatch(*ticket.offsets(), batch.checksum))
        return found

    def script(self) -> None:
        self.act(self.group.elect, 1)
        for number in range(6):
            self.act(self.produce, f"record {number} of the first leader")
            for _ in range(number):
                self.act(self.group.deliver_one)
        self.act(self.group.settle)
        self.act(self.produce, "uncommitted")
        self.act(self.group.deliver_one)

    def finish(self) -> None:
        """Bring the victim back and hold the files against each other."""
        if self.victim in self.group.living:
            self.group.kill(self.victim)
            self.lead_on()
        self.produce("of the next leader")
        self.group.settle()
        assert self.sent[-1][0].acknowledged
        self.group.restart(self.victim)
        self.group.settle()
        self.group.readmit(self.victim)
        self.produce("of all three again")
        self.group.settle()
        assert self.sent[-1][0].acknowledged
        marks = {self.group.log(i).high_watermark for i in REPLICAS}
        ends = {self.group.log(i).log_end_offset for i in REPLICAS}
        assert len(marks | ends) == 1
        self.group.close()
        comparison = compare_replicas(
            list(self.directories.values()), marks.pop(), self.acknowledged()
        )
        assert comparison.acknowledged_records >= 6
        assert comparison.batches > 2


def effects_of_the_script(tmp_path, monkeypatch, victim: int) -> int:
    with monkeypatch.context() as patch:
        row = DeathRow(victim, None)
        row.arm(patch)
        scene = Scene(tmp_path / "counted", victim)
        with scene.group:
            scene.script()
        return row.count


@pytest.mark.slow
@pytest.mark.parametrize("victim", REPLICAS)
def test_a_replica_that_dies_before_any_of_its_effects_comes_back_equal(
    tmp_path, monkeypatch, victim
):
    count = effects_of_the_script(tmp_path, monkeypatch, victim)
    assert count > 10
    for effects_left in range(count + 1):
        with monkeypatch.context() as patch:
            row = DeathRow(victim, effects_left)
            row.arm(patch)
            scene = Scene(tmp_path / f"after-{effects_left}", victim)
            with scene.group:
                scene.script()
                row.effects_left = None
                scene.finish()


def test_an_old_leader_cuts_what_was_never_committed_and_keeps_the_rest(tmp_path):
    scene = Scene(tmp_path, 1)
    with scene.group as group:
        scene.script()
        old_end = group.log(1).log_end_offset
        committed = group.log(1).high_watermark
        assert committed < old_end
        group.kill(1)
        group.elect(3)
        scene.produce("of the next leader")
        group.settle()
        group.restart(1)
        assert group.log(1).log_end_offset == old_end
        group.settle()
        cut = next(cut for cut in group.truncations if cut.replica_id == 1)
        assert (cut.old_end_offset, cut.new_end_offset) == (old_end, committed)


def test_a_kill_writes_nothing(tmp_path):
    """What a crashed process leaves is what the kernel had: no checkpoint, no marker, no index."""
    scene = Scene(tmp_path, 1)

    def files():
        return {
            entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in os.scandir(scene.directories[1])
        }

    with scene.group as group:
        scene.script()
        before = files()
        group.kill(1)
        assert files() == before
        assert ".kafka_cleanshutdown" not in before
