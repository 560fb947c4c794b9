"""What the controller did, for operators: each with its cause and the figures that led to it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

from replog.types import frozen

if TYPE_CHECKING:
    import uuid

    from replog.admin_messages import UncleanElection
    from replog.types import TopicPartition


class FenceCause(enum.Enum):
    """Why a broker may not lead."""

    SESSION_EXPIRED = "no heartbeat came within broker_session_timeout_ms"
    CONNECTION_LOST = "its connections were reset"
    SHUT_DOWN = "its controlled shutdown is complete"


class ElectionCause(enum.Enum):
    """Why this replica and no other was made leader."""

    FIRST = "the first live replica of a new partition"
    IN_SYNC = "the first live in-sync replica"
    HOLDS_ALL_COMMITTED = "it left the in-sync set below its floor, so nothing was committed since"
    LONGEST = "the longest of enough replicas that came back from an unclean stop"
    UNCLEAN = "no in-sync replica is left, and the topic allows any (records may be lost)"
    REASSIGNED = "the first live in-sync one of the replicas that a reassignment leads to"
    PREFERRED = "the first assigned replica, which is in sync"
    SHUT_DOWN = "the first live in-sync replica besides the one that shuts down"


@frozen
class BrokerRegistered:
    """A broker has a new epoch; `unclean`: it stopped without its marker, tails may be lost;
    `other_directory`: it has another directory than in its last run, or an older copy of it.
    """

    broker_id: int
    broker_epoch: int
    previous_epoch: int | None
    unclean: bool
    other_directory: bool = False


@frozen
class BrokerFenced:
    """Its replicas neither lead nor are in sync from now on."""

    broker_id: int
    broker_epoch: int
    cause: FenceCause
    silent_ms: int | None = None
    """Time since its last heartbeat."""


@frozen
class BrokerUnfenced:
    """It takes part again."""

    broker_id: int
    broker_epoch: int


@frozen
class LeaderElected:
    """A partition has a new leader; `unclean` elections may have lost records. `told`: the replicas
    that are to act on it.
    """

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    previous_leader_id: int | None
    isr: tuple[int, ...]
    told: tuple[int, ...]
    cause: ElectionCause


@frozen
class PartitionOffline:
    """No replica may lead; `waiting_for` would do, any of them unless `needed` are."""

    topic_partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    waiting_for: tuple[int, ...]
    unclean: tuple[int, ...]
    """Those that are back from an unclean stop: not one alone can vouch for what was committed."""
    damaged: tuple[int, ...]
    lost: tuple[int, ...] = ()
    """Those that are back without the log that they had: it is waited for, not the one they have
    now."""


@frozen
class InSyncSetChanged:
    """The controller took replicas out, or granted a leader's proposal."""

    topic_partition: TopicPartition
    partition_epoch: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    proposed_by: int | None
    """The leader; None where the controller itself decided."""


@frozen
class DamageFound:
    """A broker says that its log is corrupt: the replica leaves the in-sync set, if others are in
    it, and is fetched anew.
    """

    topic_partition: TopicPartition
    broker_id: int


@frozen
class TopicCreated:
    """A topic came to be."""

    topic: str
    topic_id: uuid.UUID
    partitions: int


@frozen
class TopicDeleted:
    """A topic is gone; brokers delete its files when they hear of it."""

    topic: str
    topic_id: uuid.UUID


@frozen
class PartitionsAdded:
    """A topic has more partitions now."""

    topic: str
    partitions: int
    added: int


@frozen
class TransitionRefused:
    """A change of a partition would have led to a state that must not follow its own. It was not
    made, and nothing of it is in the metadata; `message` names both states.
    """

    topic_partition: TopicPartition | None
    message: str


@frozen
class UncleanLoss:
    """A broker has told what an unclean election made it cut: all that is known of it by now."""

    election: UncleanElection

    @property
    def topic_partition(self) -> TopicPartition:
        return self.election.topic_partition


@frozen
class EventFailed:
    """The controller could not decide about one event, through a fault of its own. Nothing of it is
    in the metadata. `resigned`: it had begun, and begins anew from what is committed.
    """

    event: str
    message: str
    resigned: bool


@frozen
class BrokerQueueFull:
    """A broker has not obeyed for so long that its deletions alone fill its queue."""

    message: str


@frozen
class OptionsChanged:
    """Options of a topic or broker were set; None: set back to the default."""

    resource: str
    options: tuple[tuple[str, str | None], ...]


class ReassignmentCause(enum.Enum):
    """Why a reassignment has changed the metadata."""

    REQUESTED = "an operator asked for it"
    STEPPED = "the step before is committed"
    COMPLETED = "the last step is done"
    CANCELLED = "an operator called it off"


@frozen
class ReassignmentStepped:
    """A reassignment has got further: what the metadata says of the partition now."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    leader_id: int | None
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    cause: ReassignmentCause


Incident: TypeAlias = (
    BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | LeaderElected
    | PartitionOffline
    | InSyncSetChanged
    | DamageFound
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | ReassignmentStepped
    | OptionsChanged
    | BrokerQueueFull
    | TransitionRefused
    | EventFailed
    | UncleanLoss
)
