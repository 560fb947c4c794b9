"""What operators ask of reassignments: begin, change, call off, look."""

from __future__ import annotations

from replog.admin_messages import (
    ListReassignmentsRequest,
    ListReassignmentsResponse,
    PartitionResult,
    PartitionResults,
    Reassignment,
    ReassignmentProgress,
    ReassignPartitionsRequest,
)
from replog.controller.catch_up import CatchUp
from replog.controller.decision import Decision
from replog.controller.incidents import TransitionRefused
from replog.controller.partition_image import PartitionImage
from replog.controller.reassignment import Reassignments
from replog.controller.replication_throttle import ReplicationThrottle
from replog.controller.state_machines import IllegalTransitionError
from replog.messages import ErrorCode


class ReassignmentControl:
    """Checks each partition of a request by itself; a refused one changes nothing."""

    def __init__(
        self,
        decision: Decision,
        reassignments: Reassignments,
        throttle: ReplicationThrottle,
        catch_up: CatchUp,
    ) -> None:
        self._decision = decision
        self._image = decision.image
        self._reassignments = reassignments
        self._throttle = throttle
        self._catch_up = catch_up

    def reassign(self, request: ReassignPartitionsRequest) -> PartitionResults:
        """Begin, turn or call off reassignments."""
        rate = request.throttle_bytes_per_s
        if rate is not None and rate < 1:
            return PartitionResults(
                error=ErrorCode.INVALID_REQUEST,
                message=f"expected a throttle of at least 1 byte per second, found {rate}",
            )
        results = tuple(self._one(asked) for asked in request.partitions)
        if rate is not None and self._image.reassigning:
            self._throttle.limit(rate)
        self._throttle.settle()
        return PartitionResults(partitions=results)

    def progress(self, request: ListReassignmentsRequest) -> ListReassignmentsResponse:
        """What is under way."""
        chosen = None if request.partitions is None else set(request.partitions)
        return ListReassignmentsResponse(
            reassignments=tuple(
                self._progress(partition)
                for partition in self._image.reassigning
                if chosen is None or partition.name in chosen
            )
        )

    def _progress(self, partition: PartitionImage) -> ReassignmentProgress:
        bytes_left, seconds_left = self._catch_up.left(partition)
        return ReassignmentProgress(
            topic_partition=partition.name,
            replicas=partition.target,
            adding=partition.joining,
            removing=partition.removing,
            in_sync=partition.isr,
            bytes_left=bytes_left,
            seconds_left=seconds_left,
        )

    def _one(self, asked: Reassignment) -> PartitionResult:
        name = asked.topic_partition
        partition = self._image.partition(name)
        if partition is None:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                message=f"expected an existing partition to reassign, found no {name}",
            )
        try:
            return self._carry_out(partition, asked)
        except IllegalTransitionError as error:
            incident = TransitionRefused(topic_partition=name, message=str(error))
            self._decision.report(incident)
            return PartitionResult(
                topic_partition=name, error=ErrorCode.INVALID_REQUEST, message=str(error)
            )

    def _carry_out(self, partition: PartitionImage, asked: Reassignment) -> PartitionResult:
        name = partition.name
        if asked.replicas is None:
            return self._cancel(partition)
        sentence = self._why_not(partition, asked.replicas)
        if sentence is not None:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                message=f"expected {sentence}; choose other replicas for {name}",
            )
        target = tuple(asked.replicas)
        if target != partition.target or (
            not partition.reassigning and target != partition.replicas
        ):
            self._reassignments.start(partition, target)
        return PartitionResult(topic_partition=name)

    def _cancel(self, partition: PartitionImage) -> PartitionResult:
        name = partition.name
        if not partition.reassigning:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                message=f"expected a reassignment of {name} to call off, found none",
            )
        if not self._reassignments.cancel(partition):
            original = self._reassignments.original(partition)
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                message=(
                    f"expected as many of the original replicas {list(original)} of {name} in sync "
                    f"as min.insync.replicas wants, found {list(partition.isr)}; going back could "
                    f"lose what is committed. Let it complete, or wait until they have caught up"
                ),
            )
        return PartitionResult(topic_partition=name)

    def _why_not(self, partition: PartitionImage, target: tuple[int, ...]) -> str | None:
        if not target:
            return "at least one replica, found none"
        if len(set(target)) != len(target):
            return f"each broker once, found {list(target)}"
        unknown = [replica for replica in target if replica not in self._image.brokers]
        if unknown:
            return f"registered brokers, found {unknown} (known are {sorted(self._image.brokers)})"
        return None
