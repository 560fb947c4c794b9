"""How a partition is doing, and what one that nobody leads waits for, in a sentence."""

from __future__ import annotations

from replog.admin_messages import (
    DescribePartitionsRequest,
    DescribePartitionsResponse,
    PartitionStatus,
)
from replog.controller.leader_selection import enough_of
from replog.controller.metadata_image import MetadataImage
from replog.controller.partition_image import PartitionImage
from replog.controller.replica_reports import ReplicaReports
from replog.controller.state_machines import partition_state, replica_state
from replog.messages import ErrorCode


def describe(
    image: MetadataImage, reports: ReplicaReports, request: DescribePartitionsRequest
) -> DescribePartitionsResponse:
    """A status for each partition asked for."""
    if request.partitions is None:
        return DescribePartitionsResponse(
            partitions=tuple(_status(image, reports, found) for found in image.leaderless)
        )
    statuses = []
    for name in request.partitions:
        partition = image.partition(name)
        if partition is None:
            statuses.append(
                PartitionStatus(
                    topic_partition=name,
                    error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    message=f"expected an existing partition, found no {name}",
                )
            )
        else:
            statuses.append(_status(image, reports, partition))
    return DescribePartitionsResponse(partitions=tuple(statuses))


def _status(
    image: MetadataImage, reports: ReplicaReports, partition: PartitionImage
) -> PartitionStatus:
    return PartitionStatus(
        topic_partition=partition.name,
        state=partition_state(partition).value,
        replica_states=tuple(
            (replica, replica_state(image, partition, replica).value)
            for replica in partition.replicas
        ),
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=partition.isr,
        eligible=partition.elr,
        suspect=partition.last_known_elr,
        damaged=tuple(sorted(reports.damaged(partition))),
        lost=tuple(sorted(partition.lost)),
        message=_waits_for(image, reports, partition),
    )


def _waits_for(
    image: MetadataImage, reports: ReplicaReports, partition: PartitionImage
) -> str | None:
    if partition.leader_id is not None:
        return None
    damaged = reports.damaged(partition)
    suspects = set(partition.last_known_elr)
    sound = [
        replica
        for replica in (*partition.isr, *partition.elr)
        if not (replica in suspects or replica in damaged or replica in partition.lost)
    ]
    begin = f"expected a leader of {partition.name}, found none"
    unclean = (
        f"or set unclean.leader.election.enable, and lose what only {_named(partition)} may have"
    )
    if sound:
        return f"{begin}; start broker {' or '.join(map(str, sound))}, {unclean}"
    if partition.lost:
        (lost,) = partition.lost
        return (
            f"{begin}; broker {lost} is back without the log that it had, of which no other "
            f"replica is known to have all: start it with the directory as the broker left it when "
            f"it stopped last, {unclean}"
        )
    ends = reports.ends(partition)
    untold = [replica for replica in partition.last_known_elr if replica not in ends]
    away = [replica for replica in untold if not image.is_live(replica)]
    if damaged:
        begin += f" (the logs of {sorted(damaged)} are damaged)"
    if not untold:
        return f"{begin}, nor a replica that vouches for its records; mend a log, {unclean}"
    what = f"start {away}" if away else "wait until they have told"
    return (
        f"{begin}; its holders may have lost their tails, so that the longest of "
        f"{enough_of(partition.min_insync_replicas, len(partition.holders))} is chosen, and "
        f"{untold} have not told theirs; {what}, {unclean}"
    )


def _named(partition: PartitionImage) -> str:
    return str(sorted(partition.holders))
