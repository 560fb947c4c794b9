"""What the controller decides and brokers obey: who is there, who leads, who is in sync.

Frozen values. A broker learns of changes as `MetadataDelta`s with growing versions, never misses
one in between, and applies a partition's registration only if its `partition_epoch` is not older
than the one it has.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from replog.config import LogConfig
from replog.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    import uuid

    from replog.types import TopicPartition

NO_BROKER_EPOCH = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Options of a topic; names are Kafka's."""

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    log: LogConfig = dataclasses.field(default_factory=LogConfig)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where a broker can be reached; `protocol` as Kafka numbers security protocols."""

    name: str
    host: str
    port: int
    protocol: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """One broker as the controller knows it; registering again raises `broker_epoch`."""

    broker_id: int
    broker_epoch: int
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    listeners: tuple[Listener, ...] = ()

    @property
    def eligible(self) -> bool:
        """Whether its replicas may be in an in-sync set, and lead (KIP-841)."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """Who holds a partition.

    Invariant: isr is a non-empty subset of replicas; leader_id is None or in isr. `leader_epoch`
    grows with every change of leader (also to none), `partition_epoch` with every change.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_id: int | None
    leader_epoch: int = NO_LEADER_EPOCH + 1
    partition_epoch: int = 0
    unclean: bool = False
    """The leader of this epoch was elected from outside the in-sync set, and has yet to say that
    it has recovered (KIP-704)."""
    unclean_epoch: int = NO_LEADER_EPOCH
    """The latest leader epoch whose leader was: a replica whose records are all of older epochs may
    hold committed ones that were lost then, and truncates below its high watermark."""
    config: TopicConfig = dataclasses.field(default_factory=TopicConfig)

    @property
    def min_insync_replicas(self) -> int:
        """The floor for acks=all and for the high watermark: never above the replica count."""
        return min(self.config.min_insync_replicas, len(self.replicas))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDelta:
    """Changes that lead to metadata `version`; what is not named stays as it was.

    `version` is the end of the metadata log that it takes in: every record below that offset.
    `removed_partitions` go first: the same name may come back in `partitions` under a new topic id.
    """

    version: int
    brokers: tuple[BrokerRegistration, ...] = ()
    partitions: tuple[PartitionRegistration, ...] = ()
    removed_partitions: tuple[tuple[TopicPartition, uuid.UUID], ...] = ()
    removed_brokers: tuple[int, ...] = ()
    broker_options: tuple[tuple[int | None, str, str | None], ...] = ()
    """(broker id, or None for all; option; text, or None where it is unset): Kafka's names."""
    is_awaited: bool = False
    """Somebody waits until brokers have obeyed it: a broker that shuts down, or whoever creates a
    topic and wants its replicas to have started."""
