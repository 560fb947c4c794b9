"""Hears everything that happens in a run, keeps the truth, and asks the checkers after each event.

It stands between the simulated machines and the checkers: it turns calls of logs, brokers, clients
and the controller into the events that checkers listen to, counts them, mixes them into the digest
of the run, and drops what concerns topics that are gone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from replog.controller.broker_image import raw_incarnation
from replog.controller.incidents import DamageFound, EventFailed, TransitionRefused
from replog.messages import (
    DeleteRecordsRequest,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ProduceRequest,
)
from replog.registrations import NO_BROKER_EPOCH, MetadataDelta, PartitionRegistration
from replog.replication.incidents import IsrChanged, IsrStage, LeadershipChanged
from replog.runtime.journal import JournalEntry
from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.marks import Marks
from replog.testing.simulation.sim_broker import SimBroker
from replog.testing.simulation.sim_log import SimLog
from replog.testing.simulation.truth import PartitionTruth, Truth
from replog.testing.simulation.violation import Violation
from replog.types import TopicPartition

EVENTS = (
    "leader_appended",
    "follower_appended",
    "claimed",
    "truncated",
    "high_watermark_set",
    "committed",
    "committed_loosely",
    "log_created",
    "log_start_moved",
    "impossible_order",
    "registered",
    "broker_registered",
    "unclean_registered",
    "broker_sent",
    "request_taken",
    "produce_answered",
    "fetch_answered",
    "records_deleted",
    "offset_answered",
    "broker_told",
    "disk_lost",
)


class Oracle:
    """See the module. Satisfies LogObserver and BrokerObserver."""

    def __init__(self, truth: Truth, checkers: Sequence[object], marks: Marks) -> None:
        self.truth = truth
        self.marks = marks
        self.events = 0
        """Messages delivered, I/O completions and timers that did something."""
        self._mixed = 0
        self.trace: Callable[[str], None] | None = None
        """Where to write what happens, for a reader."""
        self.leader_changes = 0
        self.truncations = 0
        self.incarnation: Callable[[int], bytes] = lambda _: b""
        """The one of a broker that is registered, as records have it."""
        self._started: dict[bytes, int] = {}
        """Which incarnation of its broker that is."""
        hears: dict[str, tuple[Callable[..., None], ...]] = {
            name: tuple(getattr(one, name) for one in checkers if hasattr(one, name))
            for name in EVENTS
        }
        self._on_leader_appended = hears["leader_appended"]
        self._on_follower_appended = hears["follower_appended"]
        self._on_claimed = hears["claimed"]
        self._on_truncated = hears["truncated"]
        self._on_high_watermark_set = hears["high_watermark_set"]
        self._on_committed = hears["committed"]
        self._on_committed_loosely = hears["committed_loosely"]
        self._on_log_created = hears["log_created"]
        self._on_log_start_moved = hears["log_start_moved"]
        self._on_impossible_order = hears["impossible_order"]
        self._on_registered = hears["registered"]
        self._on_broker_registered = hears["broker_registered"]
        self._on_unclean_registered = hears["unclean_registered"]
        self._on_broker_sent = hears["broker_sent"]
        self._on_request_taken = hears["request_taken"]
        self._on_produce_answered = hears["produce_answered"]
        self._on_fetch_answered = hears["fetch_answered"]
        self._on_records_deleted = hears["records_deleted"]
        self._on_offset_answered = hears["offset_answered"]
        self._on_broker_told = hears["broker_told"]
        self._on_disk_lost = hears["disk_lost"]

    @property
    def digest(self) -> int:
        """32 bits made of everything that has happened."""
        return self._mixed & 0xFFFFFFFF

    # -- what happens, counted

    def network_event(
        self, kind: int, source: int, target: int, message_id: int, now_us: int
    ) -> None:
        """A message or a reset is about to be delivered."""
        self.events += 1
        # Numbers alone have the same hash in every process.
        self._mixed = hash((self._mixed, kind, source, target, message_id, now_us))

    def io_event(self, log: SimLog) -> None:
        """A log has done what it was asked."""
        self.events += 1
        start, end = log.log_start_offset, log.log_end_offset
        self._mixed = hash((self._mixed, log.broker_id, start, end, log.high_watermark))

    def note(self, text: str) -> None:
        """Something that a reader of a trace wants to know."""
        self._mixed = hash((self._mixed, zlib.crc32(text.encode())))
        if self.trace is not None:
            self.trace(text)

    # -- logs

    def leader_appended(self, log: SimLog, batch: StoredBatch) -> None:
        self.io_event(log)
        truth = self.truth.truth_of(log)
        if truth is None:
            return
        for hear in self._on_leader_appended:
            hear(log, truth, batch)

    def batch_repeated(self, log: SimLog, batch: StoredBatch) -> None:
        self.io_event(log)
        self.marks.hit("producer's batch repeated and answered as the first time")

    def created(self, log: SimLog) -> None:
        for hear in self._on_log_created:
            hear(log)

    def set_aside(self, log: SimLog) -> None:
        self.note(f"{log} was set aside")
        self.marks.hit("damaged replica set aside")

    def follower_appended(self, log: SimLog, batches: tuple[StoredBatch, ...]) -> None:
        self.io_event(log)
        truth = self.truth.truth_of(log)
        if truth is None:
            return
        self.truth.claims.pop((log.broker_id, log.topic_partition), None)
        for hear in self._on_follower_appended:
            hear(log, truth, batches)

    def epoch_assigned(self, log: SimLog, leader_epoch: int, start_offset: int) -> None:
        truth = self.truth.truth_of(log)
        if truth is None:
            return
        self.note(f"{log} leads epoch {leader_epoch} from {start_offset}")
        self.truth.claims[log.broker_id, log.topic_partition] = leader_epoch
        truth.epoch_starts.setdefault(leader_epoch, start_offset)
        for hear in self._on_claimed:
            hear(log, truth, leader_epoch)

    def truncated(self, log: SimLog, old_end_offset: int, high_watermark: int) -> None:
        self.io_event(log)
        truth = self.truth.truth_of(log)
        if truth is None:
            return
        if log.log_end_offset < old_end_offset:
            self.truncations += 1
        self.note(f"{log} was cut from {old_end_offset}")
        self.marks.truncated(log, truth, old_end_offset)
        self.truth.claims.pop((log.broker_id, log.topic_partition), None)
        for hear in self._on_truncated:
            hear(log, truth, old_end_offset, high_watermark)

    def high_watermark_set(self, log: SimLog, old: int) -> None:
        truth = self.truth.truth_of(log)
        if truth is None:
            loose = self.truth.loose_truth_of(log)
            if loose is not None:
                for hear in self._on_committed_loosely:
                    hear(log, loose, old)
            return
        for hear in self._on_high_watermark_set:
            hear(log, truth, old)
        if log.high_watermark > truth.high_watermark:
            self._commit(log, truth)

    def _commit(self, log: SimLog, truth: PartitionTruth) -> None:
        """A leader has raised the true high watermark."""
        fresh = []
        place = len(log.batches)
        while place and log.batches[place - 1].base_offset >= truth.high_watermark:
            place -= 1
        while place < len(log.batches) and log.batches[place].last_offset < log.high_watermark:
            fresh.append(log.batches[place])
            place += 1
        truth.committed.extend(fresh)
        truth.committed_bases.extend([batch.base_offset for batch in fresh])
        truth.high_watermark = log.high_watermark
        if fresh:
            for hear in self._on_committed:
                hear(log, truth, fresh)

    def log_start_moved(self, log: SimLog, old: int) -> None:
        truth = self.truth.truth_of(log)
        if truth is None:
            return
        for hear in self._on_log_start_moved:
            hear(log, truth, old)
        truth.log_start = max(truth.log_start, log.log_start_offset)
        self.marks.hit("log start advanced")

    def impossible_order(self, log: SimLog, order: str, offset: int) -> None:
        truth = self.truth.truth_of(log)
        if truth is not None:
            for hear in self._on_impossible_order:
                hear(log, truth, order, offset)

    # -- brokers

    def incident(self, entry: JournalEntry) -> None:
        incident = entry.incident
        if self.trace is not None:
            self.trace(f"broker {entry.broker_id}: {incident}")
        self.marks.incident(incident)
        if entry.broker_id is None:
            return
        if isinstance(incident, IsrChanged):
            if incident.stage is IsrStage.COMMITTED:
                key = (entry.broker_id, incident.topic_partition)
                self.truth.announced[key] = incident.after
        elif isinstance(incident, LeadershipChanged):
            self.truth.announced[entry.broker_id, incident.topic_partition] = incident.isr
            if incident.leader_id != entry.broker_id:
                self.truth.claims.pop((entry.broker_id, incident.topic_partition), None)
            log = self.truth.log_of(entry.broker_id, incident.topic_partition)
            truth = None if log is None else self.truth.truth_of(log)
            in_sync = entry.broker_id in incident.isr
            if truth is not None and incident.leader_id is not None and in_sync:
                truth.accepted(entry.broker_id, incident.leader_epoch)

    def process_started(self, broker: SimBroker) -> None:
        self.note(f"{broker} starts as incarnation {broker.incarnation}")
        self._started[raw_incarnation(f"{broker.broker_id}-{broker.incarnation}")] = (
            broker.incarnation
        )

    def process_ended(self, broker: SimBroker, how: str) -> None:
        """`how` as SimBroker says it."""
        self.note(f"{broker} {how}")
        broker_id = broker.broker_id
        for key in [key for key in self.truth.claims if key[0] == broker_id]:
            del self.truth.claims[key]
        if broker.disk.clean_epoch == NO_BROKER_EPOCH:
            self.truth.unclean[broker_id] = broker.incarnation

    def lost(
        self, broker_id: int, incarnation: int, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """That incarnation's disk has lost something of these partitions; nobody knows yet."""
        at_risk = self.truth.at_risk.setdefault(broker_id, {})
        for topic_partition in topic_partitions:
            at_risk[topic_partition] = incarnation
            self.truth.incomplete.add((broker_id, topic_partition))
            for hear in self._on_disk_lost:
                hear(broker_id, topic_partition)

    def broker_sent(self, broker: SimBroker, to: int, request: Any) -> None:
        for hear in self._on_broker_sent:
            hear(broker, to, request)

    def broker_received(self, broker: SimBroker, request: Any) -> None:
        for hear in self._on_request_taken:
            hear(broker, request)

    def broker_answered(self, broker: SimBroker, request: Any, response: Any) -> None:
        if type(request) is ProduceRequest:
            for hear in self._on_produce_answered:
                hear(broker, request, response)
        elif type(request) is FetchRequest and type(response) is FetchResponse:
            self.marks.fetch_answered(response)
            for hear in self._on_fetch_answered:
                hear(broker, request, response)
        elif type(request) is DeleteRecordsRequest:
            for hear in self._on_records_deleted:
                hear(broker, request, response)
        elif type(request) is ListOffsetsRequest:
            for hear in self._on_offset_answered:
                hear(broker, request, response)

    def broker_told(self, broker: SimBroker, delta: MetadataDelta, version: int) -> None:
        for hear in self._on_broker_told:
            hear(broker, delta)
        if delta.version > version:
            return
        told = self.truth.told
        for registration in delta.partitions:
            key = (broker.broker_id, registration.topic_partition)
            before = told.get(key)
            if (
                before is None
                or before.topic_id != registration.topic_id
                or registration.partition_epoch > before.partition_epoch
            ):
                told[key] = registration

    # -- controllers

    def controller_reported(self, incident: Any) -> None:
        if isinstance(incident, TransitionRefused | EventFailed):
            raise Violation("a decision", f"the controller has found a bug of its own: {incident}")
        if isinstance(incident, DamageFound):
            self.truth.at_risk.get(incident.broker_id, {}).pop(incident.topic_partition, None)
        self.marks.controller_incident(incident)
        if self.trace is not None:
            self.trace(f"controller: {incident}")

    def metadata_changed(self, delta: MetadataDelta) -> None:
        truth = self.truth
        renewed = []
        for broker in delta.brokers:
            before = truth.registered.get(broker.broker_id)
            truth.registered[broker.broker_id] = broker
            for hear in self._on_broker_registered:
                hear(broker, before)
            if before is None or broker.broker_epoch > before.broker_epoch:
                renewed.append(broker.broker_id)
                self._forget_risks(broker.broker_id)
        for name, topic_id in delta.removed_partitions:
            known = truth.partitions.get(name)
            if known is not None and known.registration.topic_id == topic_id:
                del truth.partitions[name]
                for key in [key for key in truth.claims if key[1] == name]:
                    del truth.claims[key]
        for registration in delta.partitions:
            self._register(registration)
        for broker_id in renewed:
            died = truth.unclean.get(broker_id)
            if died is not None and self._registered_incarnation(broker_id) > died:
                del truth.unclean[broker_id]
                for hear in self._on_unclean_registered:
                    hear(broker_id)

    def _registered_incarnation(self, broker_id: int) -> int:
        return self._started[self.incarnation(broker_id)]

    def _forget_risks(self, broker_id: int) -> None:
        """A later incarnation has registered: what the disk lost is known from here on."""
        registered = self._registered_incarnation(broker_id)
        at_risk = self.truth.at_risk.get(broker_id, {})
        for name in [name for name, died in at_risk.items() if died < registered]:
            del at_risk[name]

    def _register(self, registration: PartitionRegistration) -> None:
        truth = self.truth.partitions.get(registration.topic_partition)
        before = None
        if truth is None or truth.registration.topic_id != registration.topic_id:
            truth = PartitionTruth(registration)
            self.truth.partitions[registration.topic_partition] = truth
        else:
            before = truth.registration
            truth.registration = registration
        if self.trace is not None or before is None or before.leader_id != registration.leader_id:
            self.note(
                f"registered {registration.topic_partition}: leader {registration.leader_id} "
                f"epoch {registration.leader_epoch} isr {registration.isr}"
            )
        if before is not None and registration.leader_id != before.leader_id:
            self.leader_changes += registration.leader_id is not None
        for hear in self._on_registered:
            hear(truth, before)
        if registration.leader_id is not None:
            if len(registration.isr) >= registration.min_insync_replicas:
                truth.had_enough_in_sync = True
            for broker_id in registration.isr:
                if self.truth.vouches(broker_id, registration.topic_partition):
                    self.truth.incomplete.discard((broker_id, registration.topic_partition))
