"""A whole cluster on one heap: brokers, controllers, network, disks, clients, and the oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replog.messages import Acks
from replog.registrations import PartitionRegistration
from replog.testing.simulation.admin import Admin
from replog.testing.simulation.batches import ClientBatch
from replog.testing.simulation.checkers.clients import (
    ConsumersSeeTheCommitted,
    ProducersKeepTheirOrder,
    TopicsAnswerForThemselves,
)
from replog.testing.simulation.checkers.committed import (
    AcknowledgedIsCommitted,
    CommittedIsKept,
    EnoughCopies,
    NoZombieCommits,
)
from replog.testing.simulation.checkers.controllers import (
    CommandsEndOnce,
    IncarnationsHaveEpochs,
    StateIsTheLog,
    VouchersAreWhatTheySay,
)
from replog.testing.simulation.checkers.log_starts import LogStartsOnlyRise
from replog.testing.simulation.checkers.logs import (
    LogMatching,
    OneLeaderPerEpoch,
    TruncationsAreSafe,
    WatermarksOnlyRise,
)
from replog.testing.simulation.checkers.losses import LossesAreTold
from replog.testing.simulation.checkers.quorum import (
    CommittedMetadataStays,
    MetadataLogsMatch,
    PromisesAreKept,
)
from replog.testing.simulation.checkers.registrations import (
    EpochsOnlyGrow,
    JoinersAreEligible,
    UncleanLeavesTheIsr,
)
from replog.testing.simulation.client import Cluster
from replog.testing.simulation.consumer import Consumer
from replog.testing.simulation.disk import SimDisk
from replog.testing.simulation.marks import Marks
from replog.testing.simulation.network import Network
from replog.testing.simulation.options import RunOptions
from replog.testing.simulation.oracle import Oracle
from replog.testing.simulation.prng import Stream, Streams
from replog.testing.simulation.producer import Producer, ProducerOptions
from replog.testing.simulation.quorum_truth import QuorumTruth
from replog.testing.simulation.scheduler import Scheduler
from replog.testing.simulation.sim_broker import (
    CLIENTS_FROM,
    CONTROLLERS_FROM,
    BrokerSettings,
    SimBroker,
)
from replog.testing.simulation.sim_quorum import SimQuorum
from replog.testing.simulation.truth import Truth
from replog.types import Isolation, TopicPartition

TOPIC = "orders"
SCRATCH = "scratch"
"""A topic that is deleted and created again."""


class World:
    """Everything of one run. Brokers are started, topics not yet created."""

    def __init__(
        self,
        options: RunOptions,
        streams: Streams,
        trace: Callable[[str], None] | None = None,
        listeners: Sequence[object] = (),
    ) -> None:
        """`trace` is given a line for whatever a reader may want to know.

        listeners: hear what checkers hear, after them.
        """
        self.options = options
        self.streams = streams
        shuffle = streams.stream("scheduler").draw if options.shuffle else None
        self.scheduler = Scheduler(shuffle)
        self.marks = Marks()
        self.brokers: dict[int, SimBroker] = {}
        self.truth = Truth(self.brokers)
        self.order = ProducersKeepTheirOrder(self.truth)
        self.losses = LossesAreTold(self.truth)
        voters = range(CONTROLLERS_FROM + 1, CONTROLLERS_FROM + 1 + options.controllers)
        quorum = QuorumTruth(tuple(voters))
        checkers = [*self._checkers(quorum), *listeners]
        self.oracle = Oracle(self.truth, checkers, self.marks)
        self.oracle.incarnation = lambda broker_id: quorum.image.brokers[broker_id].incarnation
        if trace is not None:
            self.oracle.trace = lambda line: trace(f"{self.scheduler.now_us / 1000:10.3f} {line}")
        self.network = Network(self.scheduler, streams, options.network, self.oracle.network_event)
        for voter in voters:
            distance_us = max(options.quorum_latency_us, options.latency_us)
            self.network.distances_us[voter] = distance_us
        self.quorum = SimQuorum(
            quorum, checkers, self.scheduler, self.network, streams, options, self.oracle
        )
        for broker_id in range(1, options.brokers + 1):
            self.brokers[broker_id] = self._broker(broker_id)
        self.cluster = Cluster(self._lookup, self.quorum.whom_to_ask)
        self.producers: list[Producer] = []
        self.scratch_producer: Producer | None = None
        """Its topic may be gone before its batches are settled."""
        self.consumers: list[Consumer] = []
        self.admin = Admin(
            CLIENTS_FROM + 500,
            self.scheduler,
            self.network,
            streams.stream("admin"),
            self.cluster,
            options,
            topic=TOPIC,
            scratch=SCRATCH,
            ready=self._add_clients,
            recreated=lambda: self.marks.hit("topic deleted and created again"),
        )
        self.quorum.start()
        for broker in self.brokers.values():
            broker.start()

    @property
    def addresses(self) -> list[int]:
        """Of controllers and brokers."""
        return [*self.quorum.addresses, *self.brokers]

    @property
    def ready(self) -> bool:
        """Whether the topic exists and clients use it."""
        return bool(self.producers)

    @property
    def all_producers(self) -> list[Producer]:
        scratch = self.scratch_producer
        return self.producers if scratch is None else [*self.producers, scratch]

    def stop_clients(self) -> None:
        """Nothing new is asked for; what was begun goes on."""
        self.admin.stopped = True
        for producer in self.all_producers:
            producer.stopped = True
        for consumer in self.consumers:
            consumer.reads_again = False

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that clients use from the start."""
        return [TopicPartition(TOPIC, number) for number in range(self.options.partitions)]

    @property
    def operations(self) -> int:
        """Client requests that were answered or given up."""
        clients = (self.admin, *self.all_producers, *self.consumers)
        return sum(client.operations for client in clients)

    def _lookup(self, name: TopicPartition) -> PartitionRegistration | None:
        truth = self.truth.partitions.get(name)
        return None if truth is None else truth.registration

    def _checkers(self, quorum: QuorumTruth) -> list[object]:
        truth = self.truth
        return [
            LogMatching(truth),
            OneLeaderPerEpoch(truth),
            WatermarksOnlyRise(truth),
            TruncationsAreSafe(truth),
            LogStartsOnlyRise(truth, lambda: quorum.image),
            EpochsOnlyGrow(truth),
            JoinersAreEligible(truth),
            UncleanLeavesTheIsr(truth),
            CommittedIsKept(truth),
            EnoughCopies(truth),
            NoZombieCommits(truth),
            AcknowledgedIsCommitted(truth),
            ConsumersSeeTheCommitted(truth),
            TopicsAnswerForThemselves(),
            self.order,
            self.losses,
            StateIsTheLog(truth, quorum),
            CommandsEndOnce(quorum),
            IncarnationsHaveEpochs(lambda: quorum.image),
            VouchersAreWhatTheySay(truth, lambda: quorum.image),
            PromisesAreKept(quorum),
            MetadataLogsMatch(quorum),
            CommittedMetadataStays(quorum),
        ]

    def _broker(self, broker_id: int) -> SimBroker:
        options = self.options
        return SimBroker(
            broker_id,
            self.scheduler,
            self.network,
            self.oracle,
            SimDisk(broker_id, self.oracle, self.quorum.observer),
            self.streams.stream(f"broker {broker_id}"),
            BrokerSettings(
                voters=self.quorum.addresses,
                replication=options.replication,
                controller=options.controller,
                quorum=options.quorum,
                sync_mean_us=options.sync_us,
            ),
            rack=f"rack {broker_id % 2}" if options.racks else None,
        )

    def _add_clients(self) -> None:
        """Producers and consumers of all partitions, as the seed draws them."""
        options = self.options
        stream = self.streams.stream("clients")
        for number in range(options.producers):
            self.producers.append(self._producer(CLIENTS_FROM + number, number, stream))
        self.scratch_producer = self._scratch_producer(CLIENTS_FROM + 50)
        read = [self.partitions[number % options.partitions] for number in range(options.consumers)]
        for number, partition in enumerate([*read, TopicPartition(SCRATCH, 0)]):
            address = CLIENTS_FROM + 100 + number
            self.consumers.append(
                Consumer(
                    address,
                    self.scheduler,
                    self.network,
                    self.streams.stream(f"client {address}"),
                    self.cluster,
                    partition,
                    isolation=stream.choice((Isolation.HIGH_WATERMARK, Isolation.TXN_COMMITTED)),
                    rack=f"rack {number % 2}" if options.racks else None,
                    wait_ms=options.fetch_wait,
                    on_follower_read=lambda: self.marks.hit("consumer read from a follower"),
                    on_loss=lambda: self.marks.hit("consumer told that what it read was lost"),
                )
            )

    def _scratch_producer(self, address: int) -> Producer:
        """Writes to the topic that comes and goes."""
        options = ProducerOptions(
            acks=self.streams.stream("clients").choice((Acks.ALL, Acks.LEADER)),
            idempotent=False,
            in_flight_max=1,
            interval_us=500_000,
            records_max=2,
            timeout_us=1_000_000,
            backoff_us=100_000,
        )
        return Producer(
            address,
            self.scheduler,
            self.network,
            self.streams.stream(f"client {address}"),
            self.cluster,
            [TopicPartition(SCRATCH, 0)],
            options,
            on_batch=lambda batch: self.order.sent.add(batch.values),
            on_loss=lambda *_: None,
            on_crash=lambda: None,
        )

    def _producer(self, address: int, number: int, stream: Stream) -> Producer:
        acks = (
            Acks.ALL if number == 0 else stream.choice((Acks.ALL, Acks.ALL, Acks.LEADER, Acks.NONE))
        )
        idempotent = acks is not Acks.NONE and stream.chance(0.6)
        options = ProducerOptions(
            acks=acks,
            idempotent=idempotent,
            in_flight_max=stream.between(1, 5) if idempotent else 1,
            interval_us=self.options.produce_interval * 1000,
            records_max=stream.choice((1, 4)),
            timeout_us=stream.choice((1_000_000, 4_000_000)),
            backoff_us=stream.choice((50_000, 200_000)),
            crash=stream.choice((0.0, 0.02, 0.1)),
            latency_us=stream.choice((None, None, 50_000)),
        )

        def on_batch(batch: ClientBatch) -> None:
            self.order.sent.add(batch.values)
            if acks is not Acks.ALL:
                self.order.lenient.add(batch.producer_id)

        def on_loss(name: TopicPartition, batch: ClientBatch) -> None:
            if acks is Acks.ALL:
                self.order.refused(name, batch)
            self.marks.hit("idempotent producer replaced after a loss")

        return Producer(
            address,
            self.scheduler,
            self.network,
            self.streams.stream(f"client {address}"),
            self.cluster,
            self.partitions,
            options,
            on_batch=on_batch,
            on_loss=on_loss,
            on_crash=lambda: self.marks.hit("producer crashed with batches unsettled"),
        )
