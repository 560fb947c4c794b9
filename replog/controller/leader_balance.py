"""Leaders back to where they are preferred: which moves, and when.

A broker's imbalance is the share of the partitions that prefer it which others lead. Brokers above
the threshold get back what may move without loss, at most `moves_max` a run; a run that the brake
has stopped goes on after a pause. Kafka ignores the threshold and moves everything.
"""

from __future__ import annotations

import functools

from replog.admin_messages import (
    BalanceLeadersRequest,
    BalanceLeadersResponse,
    ElectionKind,
    ElectLeadersRequest,
    LeaderMove,
    PartitionResult,
    PartitionResults,
)
from replog.config import ControllerOptions
from replog.controller.decision import Decision
from replog.controller.incidents import TransitionRefused
from replog.controller.leader_selection import Selection, preferred_replica
from replog.controller.partition_control import PartitionControl
from replog.controller.partition_image import PartitionImage
from replog.controller.state_machines import IllegalTransitionError
from replog.messages import ErrorCode
from replog.types import TopicPartition


class LeaderBalance:
    """Elections that operators ask for, and those that come round by themselves."""

    def __init__(
        self, decision: Decision, partitions: PartitionControl, options: ControllerOptions
    ) -> None:
        self._image = decision.image
        self._partitions = partitions
        self._options = options
        self.due_ms: int | None = None
        """When to look next; None: never."""

    def begin(self, now_ms: int) -> None:
        """Look at once: what another controller had begun may not be complete."""
        self.due_ms = now_ms if self._options.auto_leader_rebalance_enable else None
        self.tick(now_ms)

    def tick(self, now_ms: int) -> None:
        """Balance if it is time."""
        if self.due_ms is None or now_ms < self.due_ms:
            return
        left = self._move(
            self._options.leader_imbalance_per_broker_percentage,
            self._options.leader_moves_max,
            dry_run=False,
        ).left
        self.due_ms = now_ms + (
            self._options.leader_moves_pause_ms
            if left
            else self._options.leader_imbalance_check_interval_ms
        )

    def balance(self, request: BalanceLeadersRequest) -> BalanceLeadersResponse:
        """Balance now, or say what would be moved."""
        threshold = request.threshold_percent
        moves_max = request.moves_max
        if threshold is None:
            threshold = self._options.leader_imbalance_per_broker_percentage
        if moves_max is None:
            moves_max = self._options.leader_moves_max
        if threshold < 0 or moves_max < 1:
            return BalanceLeadersResponse(
                error=ErrorCode.INVALID_REQUEST,
                message=(
                    f"expected a threshold of at least 0 percent and a brake of at least 1 move, "
                    f"found {threshold} and {moves_max}"
                ),
            )
        return self._move(threshold, moves_max, dry_run=request.dry_run)

    def elect(self, request: ElectLeadersRequest) -> PartitionResults:
        """Elect as asked, partition by partition; of all partitions only those that change."""
        if request.partitions is not None:
            return PartitionResults(
                partitions=tuple(
                    self._elect(request.kind, self._image.partition(name), name)
                    for name in request.partitions
                )
            )
        if request.kind is ElectionKind.UNCLEAN:
            chosen = list(self._image.leaderless)
        else:
            chosen = [
                partition
                for partition in self._image.partitions()
                if partition.leader_id != partition.replicas[0]
            ]
        return PartitionResults(
            partitions=tuple(
                self._elect(request.kind, partition, partition.name) for partition in chosen
            )
        )

    def _elect(
        self, kind: ElectionKind, partition: PartitionImage | None, name: TopicPartition
    ) -> PartitionResult:
        if partition is None:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                message=f"expected an existing partition to elect for, found no {name}",
            )
        try:
            if kind is ElectionKind.UNCLEAN:
                return self._elect_any(partition)
            return self._elect_preferred(partition)
        except IllegalTransitionError as error:
            self._partitions.report(TransitionRefused(topic_partition=name, message=str(error)))
            return PartitionResult(
                topic_partition=name, error=ErrorCode.INVALID_REQUEST, message=str(error)
            )

    def _elect_preferred(self, partition: PartitionImage) -> PartitionResult:
        name = partition.name
        first = partition.replicas[0]
        if partition.leader_id == first:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.ELECTION_NOT_NEEDED,
                message=f"expected another leader of {name} than {first}, the preferred one",
            )
        chosen = preferred_replica(self._partitions.candidates(partition), self._image.is_live)
        if chosen is None:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                message=(
                    f"expected broker {first}, the preferred leader of {name}, live and in sync, "
                    f"found {list(partition.isr)} in sync; try again when it has caught up"
                ),
            )
        self._partitions.switch(partition, chosen)
        return PartitionResult(topic_partition=name)

    def _elect_any(self, partition: PartitionImage) -> PartitionResult:
        name = partition.name
        if partition.leader_id is not None:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.ELECTION_NOT_NEEDED,
                message=(
                    f"expected {name} to have no leader, found {partition.leader_id}; an election "
                    f"that may lose records is for partitions that nobody leads"
                ),
            )
        self._partitions.settle(partition, unclean=True)
        if partition in self._image.leaderless:
            return PartitionResult(
                topic_partition=name,
                error=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                message=(
                    f"expected a live replica of {name} whose log is whole, found none among "
                    f"{list(partition.replicas)}; start one of these brokers"
                ),
            )
        return PartitionResult(topic_partition=name)

    def _move(
        self, threshold_percent: int, moves_max: int, *, dry_run: bool
    ) -> BalanceLeadersResponse:
        movable = self._movable(threshold_percent)
        moves = tuple(
            LeaderMove(
                topic_partition=partition.name,
                from_broker=partition.leader_id,
                to_broker=chosen.leader_id,
            )
            for partition, chosen in movable[:moves_max]
        )
        if not dry_run:
            for partition, chosen in movable[:moves_max]:
                switch = functools.partial(self._partitions.switch, partition, chosen)
                self._partitions.attempt(partition, switch)
        return BalanceLeadersResponse(moves=moves, left=len(movable) - len(moves))

    def _movable(self, threshold_percent: int) -> list[tuple[PartitionImage, Selection]]:
        """What may move to brokers that are too far from what they should lead."""
        preferring: dict[int, int] = {}
        elsewhere: dict[int, list[PartitionImage]] = {}
        for partition in self._image.partitions():
            first = partition.replicas[0]
            preferring[first] = preferring.get(first, 0) + 1
            if partition.leader_id not in {first, None} and not partition.reassigning:
                elsewhere.setdefault(first, []).append(partition)
        found: list[tuple[PartitionImage, Selection]] = []
        for broker_id in sorted(elsewhere):
            led_by_others = elsewhere[broker_id]
            if len(led_by_others) * 100 <= threshold_percent * preferring[broker_id]:
                continue
            for partition in led_by_others:
                chosen = preferred_replica(
                    self._partitions.candidates(partition), self._image.is_live
                )
                if chosen is not None:
                    found.append((partition, chosen))
        return found
