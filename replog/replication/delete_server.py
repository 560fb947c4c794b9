"""Deleting records from the front (KIP-107): the log start moves at once, and the answer
waits until every live replica has followed, and every other one that may lead before it has.

That may be who is in sync, and while fewer than min.insync.replicas are, who was in sync before
(KIP-966): the controller does not tell leaders who that is, so nothing is answered meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.messages import DeletedRecords, DeleteRecordsResponse, ErrorCode
from replog.replication.effects import AdvanceLogStart, Respond

if TYPE_CHECKING:
    import uuid

    from replog.messages import DeleteRecordsRequest
    from replog.replication.deadlines import Timer
    from replog.replication.host_context import HostContext
    from replog.replication.partition_table import PartitionTable
    from replog.types import TopicPartition

HIGH_WATERMARK = -1
"""The offset that stands for the high watermark."""


class _DeleteWait:
    __slots__ = ("answers", "offsets", "request_id", "timer")

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        self.offsets: list[tuple[TopicPartition, uuid.UUID, int]] = []
        self.answers: list[DeletedRecords | None] = []
        self.timer: Timer | None = None

    @property
    def is_over(self) -> bool:
        return None not in self.answers


class DeleteServer:
    """Answers the delete-records requests of one broker's clients."""

    def __init__(self, context: HostContext, table: PartitionTable) -> None:
        self._context = context
        self._table = table
        self.waits: dict[int, _DeleteWait] = {}

    def receive(self, request_id: int, request: DeleteRecordsRequest, now_ms: int) -> None:
        """Move the log starts; answer when the low watermarks have followed."""
        wait = _DeleteWait(request_id)
        moved: dict[TopicPartition, int] = {}
        for topic_partition, topic_id, asked in request.partitions:
            error, offset = self._offset(topic_partition, topic_id, asked)
            answer = None
            if error is not ErrorCode.NONE:
                answer = DeletedRecords(topic_partition=topic_partition, error=error)
            elif offset > max(
                moved.get(topic_partition, 0), self._log_start_offset(topic_partition)
            ):
                moved[topic_partition] = offset
                self._context.emit(AdvanceLogStart(topic_partition, offset))
                self._context.moved.setdefault(topic_partition, False)
            wait.offsets.append((topic_partition, topic_id, offset))
            wait.answers.append(answer)
        self.waits[request_id] = wait
        # The log start has moved when this step's effects are carried out: look then.
        wait.timer = self._context.deadlines.schedule(
            now_ms + max(request.timeout_ms, 0), lambda _: self._expire(wait)
        )
        self._look_at(wait, moved)

    def wake(self) -> None:
        """Log starts, brokers or leaders have changed."""
        for wait in list(self.waits.values()):
            self._look_at(wait, {})

    def refuse(self, topic_partition: TopicPartition) -> None:
        """The partition's log start found no room to move: whoever asked may try again."""
        log_start_offset = self._log_start_offset(topic_partition)
        for wait in list(self.waits.values()):
            for index, (asked, _, offset) in enumerate(wait.offsets):
                is_undone = asked == topic_partition and offset > log_start_offset
                if is_undone and wait.answers[index] is None:
                    wait.answers[index] = DeletedRecords(
                        topic_partition=topic_partition, error=ErrorCode.KAFKA_STORAGE_ERROR
                    )
            if wait.is_over:
                self._answer(wait)

    def gone(self, request_id: int) -> None:
        """Nobody waits for this answer any more."""
        wait = self.waits.pop(request_id, None)
        if wait is not None:
            self._context.deadlines.cancel(wait.timer)

    def _offset(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, asked: int
    ) -> tuple[ErrorCode, int]:
        """Where the log is to start; with an error, why it cannot."""
        error = self._table.refusal(topic_partition, topic_id)
        if error is not ErrorCode.NONE:
            return error, 0
        leader = self._table.replicas[topic_partition].leader
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, 0
        if "delete" not in leader.registration.config.log.cleanup_policies:
            return ErrorCode.POLICY_VIOLATION, 0
        offset = leader.high_watermark if asked == HIGH_WATERMARK else asked
        if not 0 <= offset <= leader.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, 0
        return ErrorCode.NONE, offset

    def _log_start_offset(self, topic_partition: TopicPartition) -> int:
        log = self._table.replicas[topic_partition].log
        return log.log_start_offset if log is not None else 0

    def _look_at(self, wait: _DeleteWait, moved: dict[TopicPartition, int]) -> None:
        for index, (topic_partition, topic_id, offset) in enumerate(wait.offsets):
            if wait.answers[index] is not None:
                continue
            error = self._table.refusal(topic_partition, topic_id)
            leader = None
            if error is ErrorCode.NONE:
                leader = self._table.replicas[topic_partition].leader
                if leader is None:
                    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if leader is None:
                wait.answers[index] = DeletedRecords(topic_partition=topic_partition, error=error)
                continue
            low_watermark = leader.low_watermark(moved.get(topic_partition))
            if low_watermark >= offset and not leader.is_under_min_isr:
                wait.answers[index] = DeletedRecords(
                    topic_partition=topic_partition, low_watermark=low_watermark
                )
        if wait.is_over:
            self._answer(wait)

    def _expire(self, wait: _DeleteWait) -> None:
        for index, (topic_partition, _, _) in enumerate(wait.offsets):
            if wait.answers[index] is None:
                wait.answers[index] = DeletedRecords(
                    topic_partition=topic_partition, error=ErrorCode.REQUEST_TIMED_OUT
                )
        self._answer(wait)

    def _answer(self, wait: _DeleteWait) -> None:
        self._context.deadlines.cancel(wait.timer)
        del self.waits[wait.request_id]
        answers = tuple(answer for answer in wait.answers if answer is not None)
        self._context.emit(Respond(wait.request_id, DeleteRecordsResponse(partitions=answers)))
