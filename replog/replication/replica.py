"""One replica of one partition: fences epochs once, then hands the event to the role it plays.

The core's contract with its caller: carry out the effects of a step in order, feed back their
completions, and only then step the next event. A replica knows its log's view and what it was told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.errors import NotLeaderError, invariant
from replog.messages import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from replog.replication.effects import CompleteProduce, Effect, Send
from replog.replication.events import (
    Completion,
    Event,
    FollowerAppendCompleted,
    FollowerAppendFailed,
    LeaderAppendCompleted,
    LeaderAppendFailed,
    LeadershipChange,
    Produce,
    Tick,
    TruncationCompleted,
)
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from replog.replication.log_view import LogView


class Replica:
    """Leader, follower, or neither while the partition has no leader that it knows of."""

    def __init__(self, topic_partition: TopicPartition, replica_id: int, log: LogView) -> None:
        self.topic_partition = topic_partition
        self.replica_id = replica_id
        self.leader_epoch = NO_LEADER_EPOCH
        """Of the latest order of the controller. Never goes back (I5)."""
        self.role: Leader | Follower | None = None
        self._log = log

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take in one event; returns what to do about it, in order."""
        match event:
            case LeadershipChange():
                return self._change_leadership(event, now_ms)
            case FetchRequest() | ListOffsetsRequest():
                return self._serve(event, now_ms)
            case FetchResponse() | ListOffsetsResponse():
                return self._hear(event, now_ms)
            case Produce():
                return self._produce(event)
            case Tick():
                return self.role.tick(now_ms) if self.role is not None else []
            case _:
                return self._complete(event, now_ms)

    def _change_leadership(self, change: LeadershipChange, now_ms: int) -> list[Effect]:
        if change.leader_epoch <= self.leader_epoch:
            return []
        self.leader_epoch = change.leader_epoch
        leads = change.leader_id == self.replica_id
        if leads and isinstance(self.role, Leader):
            return self.role.begin_epoch(change)
        effects = self.role.resign() if isinstance(self.role, Leader) else []
        if leads:
            leader = Leader(self.replica_id, self._log)
            self.role = leader
            return effects + leader.begin_epoch(change)
        if change.leader_id is None or self.replica_id not in change.replicas:
            self.role = None
            return effects
        self.role = Follower(
            self.topic_partition,
            self.replica_id,
            change.leader_id,
            change.leader_epoch,
            self._log,
        )
        return effects + self.role.start(now_ms)

    def _serve(self, request: FetchRequest | ListOffsetsRequest, now_ms: int) -> list[Effect]:
        error = ErrorCode.NONE
        if request.current_leader_epoch < self.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif request.current_leader_epoch > self.leader_epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not isinstance(self.role, Leader):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif isinstance(request, FetchRequest):
            return self.role.fetch(request, now_ms)
        else:
            return self.role.list_offsets(request)
        return [Send(request.replica_id, _refusal(request, error))]

    def _hear(self, response: FetchResponse | ListOffsetsResponse, now_ms: int) -> list[Effect]:
        # An answer to a question of another epoch: who asked it was a follower in another life.
        if not isinstance(self.role, Follower) or response.leader_epoch != self.leader_epoch:
            return []
        if isinstance(response, FetchResponse):
            return self.role.fetch_answered(response, now_ms)
        return self.role.offsets_answered(response, now_ms)

    def _produce(self, produce: Produce) -> list[Effect]:
        if isinstance(self.role, Leader):
            return self.role.produce(produce)
        error = NotLeaderError(
            f"expected the leader of {self.topic_partition}, found replica {self.replica_id} that "
            f"does not lead it in epoch {self.leader_epoch}; nothing was appended, ask the leader",
            topic_partition=str(self.topic_partition),
            leader_epoch=self.leader_epoch,
        )
        return [CompleteProduce(produce.request_id, error=error)]

    def _complete(self, completion: Completion, now_ms: int) -> list[Effect]:
        role = self.role
        match completion:
            case LeaderAppendCompleted() if isinstance(role, Leader):
                return role.append_completed(completion)
            case LeaderAppendFailed() if isinstance(role, Leader):
                return role.append_failed(completion)
            case FollowerAppendCompleted() if isinstance(role, Follower):
                return role.append_completed(now_ms)
            case FollowerAppendFailed() if isinstance(role, Follower):
                return role.append_failed(completion.error, now_ms)
            case TruncationCompleted() if isinstance(role, Follower):
                return role.truncation_completed(now_ms)
        invariant(False, "a completion for the role that asked", completion=completion, role=role)
        return []


def _refusal(
    request: FetchRequest | ListOffsetsRequest, error: ErrorCode
) -> FetchResponse | ListOffsetsResponse:
    """The error, under the epoch that was asked with: so that the asker knows its own question."""
    if isinstance(request, FetchRequest):
        return FetchResponse(
            topic_partition=request.topic_partition,
            leader_epoch=request.current_leader_epoch,
            fetch_offset=request.fetch_offset,
            error=error,
        )
    return ListOffsetsResponse(
        topic_partition=request.topic_partition,
        leader_epoch=request.current_leader_epoch,
        spec=request.spec,
        error=error,
    )
