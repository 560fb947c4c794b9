"""A broker dies before each of its effects, on real logs, and comes back; the files are compared.

The script produces, and its effects are counted once. Then it runs again for each place and victim:
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
from tests.runtime.hand_cranked import PARTITION, HandCranked

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
BROKERS = (1, 2, 3)
NOW_MS = 1_700_000_000_000


class Died(BaseException):
    """Raised instead of the victim's next effect."""


class DeathRow:
    """Counts the effects of one broker, and stops it before one of them."""

    def __init__(self, victim: int, effects_left: int | None) -> None:
        self.victim = victim
        self.effects_left = effects_left
        self.count = 0

    def arm(self, monkeypatch) -> None:
        init = EffectExecutor.__init__

        def counting(executor, core, ports, journal, *rest):
            init(executor, core, ports, journal, *rest)
            if journal.broker_id == self.victim:
                for kind, carry_out in list(executor._carry_out.items()):
                    executor._carry_out[kind] = self.counted(carry_out)

        monkeypatch.setattr(EffectExecutor, "__init__", counting)

    def counted(self, carry_out):
        def carried_out(effect):
            if self.count == self.effects_left:
                self.effects_left = None
                raise Died
            self.count += 1
            return carry_out(effect)

        return carried_out


class Scene:
    """A cluster, a script, and a producer that remembers what was acknowledged."""

    def __init__(self, directory: str, victim: int) -> None:
        self.cluster = HandCranked(directory)
        self.victim = victim

    def act(self, action, *arguments) -> None:
        """Do one thing; if the victim dies of it, bury it and go on."""
        try:
            action(*arguments)
        except Died:
            self.cluster.members.kill(self.victim)
            self.act(self.cluster.settle)

    def produce(self, text: str) -> None:
        batches = encode([f"{text} {number}".encode() for number in range(3)], now_ms=NOW_MS)
        self.act(self.cluster.produce, bytes(batches))

    def script(self) -> None:
        for broker_id in BROKERS:
            self.act(self.cluster.start, broker_id)
        self.act(self.cluster.settle)
        self.act(self.cluster.create, CONFIG)
        for number in range(9):
            self.produce(f"record {number} of the first leader")
            self.act(self.cluster.deliver, number)
        self.act(self.cluster.settle)
        self.produce("uncommitted")
        self.act(self.cluster.deliver, 1)

    def finish(self) -> None:
        """Bring the victim back and hold the files against each other."""
        cluster = self.cluster
        if cluster.pump.brokers.get(self.victim):
            cluster.members.kill(self.victim)
        cluster.settle()
        cluster.pass_time(1000)
        if cluster.view.partition(PARTITION) is None:
            cluster.create(CONFIG)
        self.produce("of the next leader")
        cluster.settle()
        assert cluster.sent[-1][1], "no answer with one broker dead"
        cluster.start(self.victim)
        cluster.pass_time(3000)
        assert set(cluster.isr) == set(BROKERS)
        self.produce("of all three again")
        cluster.pass_time(1000)
        assert cluster.sent[-1][1][0].durability is not None
        marks = {cluster.log(i).high_watermark for i in BROKERS}
        ends = {cluster.log(i).log_end_offset for i in BROKERS}
        assert len(marks | ends) == 1
        assert not cluster.pump.crashes
        cluster.close()
        directories = [
            os.path.join(cluster.members.log_directory(i), str(PARTITION)) for i in BROKERS
        ]
        comparison = compare_replicas(directories, marks.pop(), self.acknowledged())
        assert comparison.acknowledged_records >= 6

    def acknowledged(self) -> list[AcknowledgedBatch]:
        found = []
        for batches, answer in self.cluster.acknowledged():
            [batch] = walk(batches)
            found.append(AcknowledgedBatch(answer.base_offset, answer.last_offset, batch.checksum))
        return found


def effects_of_the_script(directory: str, monkeypatch, victim: int) -> int:
    with monkeypatch.context() as patch:
        row = DeathRow(victim, None)
        row.arm(patch)
        scene = Scene(directory, victim)
        scene.script()
        scene.cluster.close()
        return row.count


@pytest.mark.slow
@pytest.mark.parametrize("victim", BROKERS)
def test_a_broker_that_dies_before_any_of_its_effects_comes_back_equal(
    tmp_path, monkeypatch, victim
):
    count = effects_of_the_script(str(tmp_path / "counted"), monkeypatch, victim)
    assert count > 10
    for effects_left in range(count + 1):
        with monkeypatch.context() as patch:
            row = DeathRow(victim, effects_left)
            row.arm(patch)
            scene = Scene(str(tmp_path / f"after-{effects_left}"), victim)
            scene.script()
            row.effects_left = None
            scene.finish()


def test_an_old_leader_cuts_what_was_never_committed_and_keeps_the_rest(tmp_path):
    scene = Scene(str(tmp_path), 1)
    scene.script()
    cluster = scene.cluster
    old_end = cluster.log(1).log_end_offset
    committed = cluster.log(1).high_watermark
    assert committed < old_end
    scene.finish()
    [cut] = [
        entry.incident
        for entry in cluster.members.entries(PARTITION)
        if type(entry.incident).__name__ == "LogTruncated" and entry.broker_id == 1
    ]
    assert (cut.old_end_offset, cut.new_end_offset) == (old_end, committed)


def test_a_kill_writes_nothing(tmp_path):
    """What a crashed process leaves is what the kernel had: no checkpoint, no marker, no index."""
    scene = Scene(str(tmp_path), 1)
    scene.script()
    directory = scene.cluster.members.log_directory(1)

    def files():
        return {
            os.path.join(place, name): os.stat(os.path.join(place, name)).st_mtime_ns
            for place, _, names in os.walk(directory)
            for name in names
        }

    before = files()
    scene.cluster.members.kill(1)
    assert files() == before
    assert not any(name.endswith(".kafka_cleanshutdown") for name in before)
    scene.cluster.close()
