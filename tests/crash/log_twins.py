"""The simulator's disk and the real one, driven alike: the same answers, the same survivors.

`Twins` does each operation on a `SimStore` and on a `DirectoryLogStore` whose system calls go
through the disk model. After a loss of power the real logs are what a random part of the unsynced
calls left; the simulated ones must be able to lose just that, and hold all else alike.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from replog._native import record_encoder, recorded_calls
from replog.config import LogConfig
from replog.errors import ReplogError
from replog.registrations import PartitionRegistration, TopicConfig
from replog.runtime import log_store
from replog.runtime.log_store import DirectoryLogStore
from replog.testing.simulation.batches import BatchSet, ClientBatch, StoredBatch
from replog.testing.simulation.disk import SimDisk, SimStore
from replog.testing.simulation.sim_log import SimLog
from replog.types import NO_PRODUCER_ID, TopicPartition
from tests.crash.checker import booted, write_image
from tests.crash.disk_model import DiskModel, some_of
from tests.crash.workload import NOW_MS, batches_in

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=150,
    segment_index_bytes=4096,
    file_delete_delay_ms=0,
    retention_ms=-1,
    retention_bytes=1500,
)
WHOLE = 1 << 30
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class Silent:
    """An observer that looks away."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class LazySettler:
    """Settles a log's small files with its next append, and no earlier: the most is at risk."""

    def settle_soon(self, log: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Loss:
    """Stands in for the simulator's stream of a power loss: each log loses what the real one did.

    Refuses what is no choice of the simulator's.
    """

    def __init__(self, losses: list[int]) -> None:
        self._losses = losses

    def between(self, low: int, high: int) -> int:
        lost = self._losses.pop(0)
        assert low <= lost <= high, f"{lost} offsets were lost, not {low} to {high}"
        return lost

    def choice(self, items: Any) -> Any:
        return items[-1]


def encoded(content: ClientBatch) -> bytes:
    options: dict[str, int] = {}
    if content.producer_id != NO_PRODUCER_ID:
        options = {
            "producer_id": content.producer_id,
            "producer_epoch": content.producer_epoch,
            "base_sequence": content.first_sequence,
        }
    values = [value.encode() for value in content.values]
    return bytes(record_encoder.encode(values, timestamps=NOW_MS, now_ms=NOW_MS, **options))


def as_stored(batch: StoredBatch) -> bytes:
    """The bytes of a simulated batch; offset and epoch lie outside of the checksum."""
    raw = bytearray(encoded(batch.content))
    struct.pack_into(">q", raw, 0, batch.base_offset)
    struct.pack_into(">i", raw, 12, batch.leader_epoch)
    return bytes(raw)


def raw_batches(batches: BatchSet) -> bytes:
    return b"".join(map(as_stored, batches))


def answer(call: Callable[[], Any]) -> Any:
    """What a call gives, or the name of what it raises."""
    try:
        return call()
    except ReplogError as error:
        return type(error).__name__


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """System calls of what happens inside are recorded, from none on."""
    recorded_calls.install()
    try:
        recorded_calls.record()
        yield
    finally:
        recorded_calls.uninstall()


class Twins:
    """Both stores of one broker. `told` is the script so far, for whoever must repeat it."""

    sim: SimStore
    real: DirectoryLogStore

    def __init__(self, directory: str, random: Random) -> None:
        self.directory = directory
        self.random = random
        self.told: list[str] = []
        observer: Any = Silent()
        self.disk = SimDisk(1, observer, observer)
        self.model = DiskModel(directory)
        self.held: dict[TopicPartition, SimLog] = {}
        self.settled: set[TopicPartition] = set()
        """Replicas that have taken a record since they were made, or begun above 0."""
        self.boots = 0
        self.lives = 0
        self.begin()

    def tell(self, text: str) -> None:
        self.told.append(text)

    def begin(self) -> None:
        """A new process takes the disk over."""
        self.lives += 1
        self.appended: set[tuple[TopicPartition, ClientBatch]] = set()
        real_settler = log_store.LogSettler
        log_store.LogSettler = LazySettler  # type: ignore[assignment, misc]
        try:
            with booted(f"boot {self.boots}"):
                self.real = DirectoryLogStore.at(
                    self.directory, 1, CLUSTER_ID, {"a": CONFIG, "b": CONFIG}, lambda: NOW_MS
                )
        finally:
            log_store.LogSettler = real_settler  # type: ignore[misc]
        self.follow()

    def follow(self) -> None:
        """Let the model do what was done since."""
        for call in recorded_calls.recorded():
            self.model.apply(call)
        recorded_calls.record()

    def found(self) -> None:
        """Take the simulated disk over, once it has lost what the real one did."""
        self.sim = SimStore(self.disk)
        self.held = dict(self.disk.logs)
        theirs, ours = self.sim.missing({}), set(self.real.missing({}))
        assert theirs == ours, f"missing: simulated {theirs}, real {ours}"
        for name in ("previous_broker_epoch", "last_broker_epoch"):
            theirs, ours = getattr(self.sim, name), getattr(self.real, name)
            assert theirs == ours, f"{name}: simulated {theirs}, real {ours}"
        states = [self.states_of(store) for store in (self.sim, self.real)]
        assert states[0] == states[1], f"found: simulated {states[0]}, real {states[1]}"
        self.compare()

    def states_of(self, store: Any) -> list[tuple[Any, ...]]:
        return sorted(
            (s.topic_partition, s.topic_id, s.latest_epoch, s.log_end_offset, s.damaged)
            for s in store.replica_states()
        )

    def kill(self) -> None:
        """The process dies; the kernel keeps what it took."""
        self.tell("kill")
        self.real.abandon()
        self.begin()
        self.settle_makings()
        self.disk.crash()
        self.found()

    def close(self, broker_epoch: int) -> None:
        self.tell(f"close({broker_epoch})")
        self.real.close(broker_epoch)
        self.sim.close(broker_epoch)
        self.disk.close()
        self.begin()
        self.settle_makings()
        self.found()

    def lose_power(self) -> None:
        """What was not synced is gone, kept, or torn, each by itself."""
        self.follow()
        pending = self.model.pending
        survivors = self.random.choice(
            [
                (),
                pending[: self.random.randrange(len(pending) + 1)],
                some_of(pending, self.random),
                some_of(pending, self.random),
            ]
        )
        self.tell(f"lose_power() keeping {len(survivors)} of {len(pending)} calls")
        image = self.model.image(survivors)
        synced = {key: self.real.get(key).synced_end_offset for key in self.disk.logs}
        self.real.abandon()
        write_image(self.directory, image)
        self.model = DiskModel(self.directory, image)
        recorded_calls.record()
        self.boots += 1
        self.begin()
        self.settle_makings()
        losses = []
        for key, log in self.disk.logs.items():
            end = self.real.get(key).log_end_offset if self.real.get(key) else -1
            assert end >= synced[key], f"{key} ends at {end}, synced was {synced[key]}"
            if log.durable_end_offset < log.log_end_offset:
                real = self.real.get(key)
                assert real is not None, f"{key} is gone, of which {log.durable_end_offset} synced"
                losses.append(log.log_end_offset - real.log_end_offset)
        self.disk.crash(Loss(losses))  # type: ignore[arg-type]
        self.found()

    def settle_makings(self) -> None:
        """A replica that was made and has taken nothing may be gone: its broker makes it again.

        ARCHITECTURE.md, "new replica": it has neither an id nor records until its first append.
        """
        for key, log in list(self.disk.logs.items()):
            if self.real.get(key) is None and log.log_end_offset == 0 and key not in self.settled:
                self.tell(f"  {key} is to be made again")
                del self.disk.logs[key]
                del self.disk.topic_ids[key]
                self.disk.checkpointed.pop(key, None)

    def both(self, name: str, key: TopicPartition, *arguments: Any, answered: bool = False) -> None:
        """Call a method of both logs; `answered`: what it gives counts, too."""
        self.tell(f"{key}.{name}{arguments}")
        if name.startswith("truncate"):
            self.appended = {(other, content) for other, content in self.appended if other != key}
        sim = answer(lambda: getattr(self.sim.get(key), name)(*arguments))
        real = answer(lambda: getattr(self.real.get(key), name)(*arguments))
        if answered or isinstance(sim, str) or isinstance(real, str):
            assert sim == real, f"{name}: simulated {sim}, real {real}"

    def append_as_leader(self, key: TopicPartition, content: ClientBatch, epoch: int) -> None:
        """The simulated batches have no timestamps: what else is answered is compared."""
        self.tell(f"{key}.append_as_leader({content}, {epoch})")
        self.appended.add((key, content))
        sim = answer(lambda: self.sim.get(key).append_as_leader(content, epoch))
        real = answer(lambda: self.real.get(key).append_as_leader(encoded(content), epoch))
        sim, real = (
            found if isinstance(found, str)
            else (found.base_offset, found.last_offset, found.duplicate)
            for found in (sim, real)
        )  # fmt: skip
        assert sim == real, f"append: simulated {sim}, real {real}"

    def append_as_follower(self, key: TopicPartition, batches: BatchSet) -> None:
        self.tell(f"{key}.append_as_follower({batches})")
        sim = answer(lambda: self.sim.get(key).append_as_follower(batches))
        real = answer(lambda: self.real.get(key).append_as_follower(raw_batches(batches)))
        if isinstance(sim, str) or isinstance(real, str):
            assert sim == real, f"append as follower: simulated {sim}, real {real}"

    def flush(self, key: TopicPartition) -> None:
        """A sync that nothing comes in between of."""
        self.tell(f"{key}.flush()")
        log = self.real.get(key)
        target = log.sync_target()
        log.sync(target)
        log.note_synced(target)
        self.sim.get(key).synced(target.end_offset)

    def retention(self, key: TopicPartition) -> None:
        """The simulated log has no sizes: its start goes where the real one's went."""
        self.tell(f"{key}.apply_retention()")
        log = self.real.get(key)
        log.log.apply_retention()
        self.sim.get(key).truncate_prefix_to(log.log_start_offset)

    def make(self, key: TopicPartition, topic_id: uuid.UUID, leader_id: int | None) -> None:
        self.tell(f"open({key}, {topic_id}, leader {leader_id})")
        registration = PartitionRegistration(
            topic_partition=key,
            topic_id=topic_id,
            replicas=(1,),
            isr=(1,),
            leader_id=leader_id,
            config=TopicConfig(log=CONFIG),
        )
        sim, real = (answer(lambda s=s: s.open(registration)) for s in (self.sim, self.real))
        if isinstance(sim, str) or isinstance(real, str):
            assert sim == real, f"open: simulated {sim}, real {real}"

    def both_stores(self, name: str, *arguments: Any) -> None:
        self.tell(f"{name}{arguments}")
        for store in (self.sim, self.real):
            getattr(store, name)(*arguments)

    def compare(self) -> None:
        """Both give the same answers to everything that can be asked."""
        self.note_settled()
        sim_keys, real_keys = set(self.disk.logs), set(self.real._logs)
        assert sim_keys == real_keys, f"simulated {sim_keys}, real {real_keys}"
        for key in sorted(sim_keys):
            sim, real = self.sim.get(key), self.real.get(key)
            assert self.sim.topic_id(key) == self.real.topic_id(key), key
            assert sim is not None
            theirs, ours = answers_of(sim), answers_of(real)
            assert theirs == ours, f"{key}: simulated {theirs}, real {ours}"
            assert sim.epochs.entries() == list(real.log.epochs), key
            self.forget_producers(sim, real)
            known = producers_of(sim, real)
            assert known[0] == known[1], f"{key}: simulated {known[0]}, real {known[1]}"
            assert sim.synced_end_offset <= real.synced_end_offset, (
                f"{key}: synced below {sim.synced_end_offset}, the real one says "
                f"{real.synced_end_offset}"
            )
            self.compare_reads(key)

    def note_settled(self) -> None:
        for key, log in self.disk.logs.items():
            if self.held.get(key) is not log:
                self.settled.discard(key)
            if log.log_end_offset:
                self.settled.add(key)
        self.held = dict(self.disk.logs)

    def forget_producers(self, sim: SimLog, real: Any) -> None:
        """Of a producer whose last batch lies below the log start, the real log may know nothing.

        As Kafka's: a cut and an open replay what can be read. SimLog never forgets one.
        """
        held = {b.content.producer_id for b in sim.batches if b.last_offset >= sim.log_start_offset}
        known = {entry.producer_id for entry in real.log.producer_entries}
        for producer_id in sim.producers.entries.keys() - known - held:
            del sim.producers.entries[producer_id]
            sim._producers_at_start.entries.pop(producer_id, None)

    def compare_reads(self, key: TopicPartition) -> None:
        sim, real = self.sim.get(key), self.real.get(key)
        start, end = sim.log_start_offset, sim.log_end_offset
        windows = [(start, end)]
        if end > start:
            low = self.random.randrange(start, end)
            windows.append((low, self.random.randrange(low, end + 1)))
        windows += [(end, end), (end + 1, end + 1), (start - 1, end)]
        for low, high in windows:
            theirs = answer(lambda: raw_batches(sim.read(low, WHOLE, high)))  # noqa: B023
            ours = answer(lambda: read_on(real, low, high))  # noqa: B023
            assert theirs == ours, (
                f"{key}: read [{low}, {high}): simulated {told(theirs)}, real {told(ours)}"
            )


def read_on(log: Any, start_offset: int, end_offset: int) -> bytes:
    """All of the batches; one read of the real log ends with its segment."""
    parts = []
    at = start_offset
    while True:
        piece = log.read(at, WHOLE, end_offset)
        if not piece.size_bytes:
            return b"".join(parts)
        parts.append(bytes(memoryview(piece)))
        at = piece.end_offset


def told(read: Any) -> Any:
    return read if isinstance(read, str) else [b[:3] for b in batches_in(read)]


def producers_of(sim: Any, real: Any) -> tuple[dict[int, tuple[int, int]], ...]:
    """By producer its epoch and last sequence, in both logs."""
    entries = sim.producers.entries.items()
    return (
        {key: (entry.epoch, entry.batches[-1].content.last_sequence) for key, entry in entries},
        {e.producer_id: (e.producer_epoch, e.last_sequence) for e in real.log.producer_entries},
    )


def answers_of(log: Any) -> dict[str, Any]:
    """What a core asks a log for."""
    end = log.log_end_offset
    return {
        "start": log.log_start_offset,
        "end": end,
        "high watermark": log.high_watermark,
        "last stable": log.last_stable_offset,
        "latest epoch": log.latest_epoch,
        "ends of epochs": [
            log.end_offset_for_epoch(epoch) for epoch in range(log.latest_epoch + 2)
        ],
        "epochs of offsets": [
            log.epoch_for_offset(at) for at in range(log.log_start_offset, end + 1)
        ],
    }
