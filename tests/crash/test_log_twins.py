"""The simulator's logs and the real ones, through the same random lives and losses of power.

REPLOG_TWIN_SEEDS=n tries n seeds instead of CI's share, from REPLOG_TWIN_SEED on.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from random import Random

import pytest

from replog.testing.simulation.batches import BatchSet, ClientBatch, StoredBatch, stored
from replog.types import TopicPartition
from tests.crash.log_twins import Twins, recording
from tests.crash.test_crash_states import memory_folder

__all__ = ["memory_folder"]
FIRST_SEED = int(os.environ.get("REPLOG_TWIN_SEED", "1"))
SEEDS = int(os.environ.get("REPLOG_TWIN_SEEDS", "200"))
STEPS = 60
KEYS = (TopicPartition("a", 0), TopicPartition("b", 1))

pytestmark = pytest.mark.slow


class Life:
    """One random script. What no core orders is left out, since the two differ there: cuts inside
    of a batch, high watermarks outside of the log, batches of an epoch below one that was assigned.
    """

    def __init__(self, twins: Twins, random: Random) -> None:
        self.twins = twins
        self.random = random
        self.number = 0
        self.broker_epoch = 0
        self.at_risk = False
        """The last step is one after which a crash shows the most."""
        self.deleted_epochs: dict[TopicPartition, int] = {}

    def step(self) -> None:
        random, twins = self.random, self.twins
        keys = sorted(twins.disk.logs)
        if self.at_risk and random.random() < 0.2:
            self.at_risk = False
            random.choice((twins.kill, twins.lose_power, twins.lose_power))()
            return
        self.at_risk = False
        if not keys or random.random() < 0.02:
            key = random.choice(KEYS)
            twins.make(key, uuid.UUID(int=random.randrange(1, 4)), 1)
            if random.random() < 0.2:
                self.restart(key)
            return
        if random.random() < 0.12:
            self.store_step()
            return
        key = random.choice(keys)
        acts = {
            self.lead: 6, self.follow: 5, self.assign: 2, self.advance: 4, self.cut: 2,
            self.restart: 0.5, self.delete_records: 1.5, self.retain: 1.5, self.roll: 1.5,
            self.flush: 3,
        }  # fmt: skip
        random.choices(list(acts), list(acts.values()))[0](key)

    def store_step(self) -> None:
        random, twins = self.random, self.twins
        match random.randrange(12):
            case 0:
                self.broker_epoch += 1
                twins.both_stores("note_broker_epoch", self.broker_epoch)
            case 1 | 2:
                twins.both_stores("checkpoint_high_watermarks")
            case 3 | 4:
                twins.tell("checkpoint_recovery_points()")
                twins.real.directory.checkpoint_recovery_points()
                twins.real.directory.checkpoint_log_start_offsets()
            case 5 if random.random() < 0.5:
                twins.both_stores("delete", random.choice(KEYS))
            case 6 if random.random() < 0.3:
                twins.both_stores("set_aside", random.choice(sorted(twins.disk.logs)))
            case 7 if random.random() < 0.3:
                kept = random.choice(KEYS)
                twins.tell(f"all but {kept} are strays")
                for store in (twins.sim, twins.real):
                    store.set_aside_strays(lambda key: key == kept)
            case 8:
                twins.close(self.broker_epoch)
            case 9:
                twins.kill()
            case 10 | 11:
                twins.lose_power()
            case _:
                pass

    def values(self) -> tuple[str, ...]:
        self.number += 1
        count = self.random.randrange(1, 4)
        return tuple(f"v{self.number}.{n}" + "x" * self.random.randrange(30) for n in range(count))

    def content(self, key: TopicPartition) -> ClientBatch:
        """A producer's batch: none's, the next, one more time, or out of its order."""
        random = self.random
        producer_id = random.choice((-1, -1, 1, 2))
        if producer_id < 0:
            return ClientBatch(self.values())
        entry = self.twins.sim.get(key).producers.entries.get(producer_id)
        if entry is None or not entry.batches:
            return ClientBatch(self.values(), producer_id, random.randrange(2), 0)
        drawn = random.random()
        if drawn < 0.25:
            # Of a producer's batches from before a restart, a snapshot has kept the last alone.
            own = [b.content for b in entry.batches if (key, b.content) in self.twins.appended]
            return random.choice([*own, entry.batches[-1].content])
        if drawn < 0.35:
            return ClientBatch(self.values(), producer_id, abs(entry.epoch - 1), 0)
        sequence = entry.batches[-1].content.last_sequence + 1
        if drawn < 0.45:
            sequence += random.randrange(1, 3)
        return ClientBatch(self.values(), producer_id, entry.epoch, sequence)

    def epoch_of(self, key: TopicPartition) -> int:
        """The lowest that batches may come in: a deleted record's epoch counts, too."""
        log = self.twins.sim.get(key)
        return max(log.latest_epoch, self.deleted_epochs.get(key, 0), 0)

    def lead(self, key: TopicPartition) -> None:
        epoch = self.epoch_of(key)
        for _ in range(self.random.randrange(1, 4)):
            self.twins.append_as_leader(key, self.content(key), epoch)

    def follow(self, key: TopicPartition) -> None:
        """A leader's batches: in order, or (refused) of an old epoch or of a wrong offset."""
        random, log = self.random, self.twins.sim.get(key)
        at = log.log_end_offset
        epoch = self.epoch_of(key) + random.choice((0, 0, 0, 1, 3))
        if random.random() < 0.1:
            at += random.choice((1, 2)) if log.batches else 0
        if log.batches and log.batches[-1].leader_epoch and random.random() < 0.1:
            epoch = log.batches[-1].leader_epoch - 1
        if not log.batches and at and random.random() < 0.5:
            at -= 1
        batches: list[StoredBatch] = []
        for _ in range(random.randrange(1, 4)):
            content = ClientBatch(self.values())
            if at < log.log_end_offset:
                content = ClientBatch((*content.values, "inside"))
            batches.append(stored(at, epoch, content))
            at = batches[-1].last_offset + 1
            epoch += random.choice((0, 0, 0, 0, 1))
        self.twins.append_as_follower(key, BatchSet(tuple(batches)))

    def assign(self, key: TopicPartition) -> None:
        log = self.twins.sim.get(key)
        epoch = self.epoch_of(key) + self.random.randrange(1, 3)
        self.twins.both("assign_epoch", key, epoch, log.log_end_offset)

    def advance(self, key: TopicPartition) -> None:
        log = self.twins.sim.get(key)
        ends = [batch.last_offset + 1 for batch in log.batches] or [log.log_end_offset]
        offset = self.random.choice(ends[-4:])
        if offset >= log.high_watermark:
            self.twins.both("set_high_watermark", key, offset)

    def cut(self, key: TopicPartition) -> None:
        log = self.twins.sim.get(key)
        low = log.log_start_offset
        starts = [batch.base_offset for batch in log.batches if batch.base_offset >= low]
        segments = [s.base_offset for s in self.twins.real.get(key).log.segments]
        ends = [start for start in segments if start in starts]
        offset = self.random.choice([*starts[-5:], *ends[-2:], *ends[-2:], log.log_end_offset])
        self.at_risk = True
        self.twins.both("truncate_to", key, offset)

    def restart(self, key: TopicPartition) -> None:
        self.at_risk = True
        log = self.twins.sim.get(key)
        offset = self.random.choice((0, log.log_end_offset, log.log_end_offset + 20))
        self.twins.both("truncate_fully_and_start_at", key, offset)

    def flush(self, key: TopicPartition) -> None:
        self.at_risk = True
        self.twins.flush(key)

    def retain(self, key: TopicPartition) -> None:
        self.at_risk = True
        self.note_epochs(key)
        self.twins.retention(key)

    def note_epochs(self, key: TopicPartition) -> None:
        epochs = [batch.leader_epoch for batch in self.twins.sim.get(key).batches]
        self.deleted_epochs[key] = max([self.deleted_epochs.get(key, 0), *epochs])

    def delete_records(self, key: TopicPartition) -> None:
        self.at_risk = True
        self.note_epochs(key)
        log = self.twins.sim.get(key)
        low = max(0, log.log_start_offset - 1)
        self.twins.both("truncate_prefix_to", key, self.random.randint(low, log.high_watermark + 1))

    def roll(self, key: TopicPartition) -> None:
        self.twins.tell(f"{key}.roll()")
        self.twins.real.get(key).log.roll()


def live(folder: Path, seed: int) -> Twins:
    """Play the script of one seed; the error of a difference names it and tells the script."""
    directory = folder / "twins"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    random = Random(seed)
    with recording():
        twins = Twins(str(directory), random)
        twins.found()
        life = Life(twins, random)
        try:
            for _ in range(STEPS):
                life.step()
                twins.compare()
        except Exception as error:
            script = "\n".join(twins.told)
            raise AssertionError(f"seed {seed}: {error!r}, behind\n{script}") from error
        finally:
            twins.real.abandon()
    return twins


def test_simulated_and_real_logs_answer_alike_and_lose_alike(memory_folder: Path) -> None:
    lives = [live(memory_folder, seed).lives for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)]
    assert sum(lives) > 3 * SEEDS, "next to nobody has died"
