"""What unclean elections have lost: exact offsets by epoch, as the brokers that held them tell.

An unclean election makes a replica the leader that may lack what others hold. Who follows it must
cut its own log where the two part; it tells the controller what, and cuts once it was heard. So who
is in sync again has told all. Election and reports are notes of the topic in the metadata (config
records that are no options), so that every controller can put them together, for as long as the
topic is there:

    replog.unclean.<partition>.<leader epoch>           who was elected, which other replicas may
                                                        yet tell, which never will
    replog.lost.<partition>.<leader epoch>.<broker id>  what that broker cuts, and what of it was
                                                        committed
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from replog.admin_messages import (
    DescribeLossesRequest,
    DescribeLossesResponse,
    LostRange,
    UncleanElection,
)
from replog.controller.decision import Decision
from replog.controller.incidents import UncleanLoss
from replog.controller.leader_selection import LogEnd
from replog.controller.metadata_image import note_of
from replog.controller.partition_image import PartitionImage
from replog.types import EpochRange, LostRecords

ELECTED = "replog.unclean"
LOST = "replog.lost"
ELECTIONS_MAX = 10
"""Per partition; the notes of older ones are dropped."""


def combined(ranges: list[EpochRange]) -> tuple[EpochRange, ...]:
    """The same offsets without overlaps, by epoch and offset."""
    found: list[EpochRange] = []
    for one in sorted(ranges):
        last = found[-1] if found else None
        if last is not None and last.epoch == one.epoch and one.start_offset <= last.end_offset:
            end_offset = max(last.end_offset, one.end_offset)
            found[-1] = EpochRange(one.epoch, last.start_offset, end_offset)
        else:
            found.append(one)
    return tuple(found)


class UncleanLosses:
    """Notes them, and tells operators."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self._image = decision.image

    def elected(self, partition: PartitionImage, end: LogEnd | None, lost: Collection[int]) -> None:
        """The partition has a leader that nobody vouches for: any other replica may hold more.
        `end`: how long the leader's log was, if it has told. `lost`: replicas whose copies are
        gone, so that they never will tell.
        """
        note = {
            "leader": partition.leader_id,
            "awaited": sorted({*partition.replicas} - {partition.leader_id, *lost}),
            "untold": sorted(lost),
            "end": None if end is None else end.log_end_offset,
        }
        self._keep_only(partition, self._elections(partition)[1 - ELECTIONS_MAX :])
        self._note(partition, self._name(ELECTED, partition, partition.leader_epoch), note)

    def told(self, partition: PartitionImage, broker_id: int, lost: LostRecords) -> None:
        """A broker must cut records because of an unclean election; it may say so again.

        Nobody asks any more for an election whose notes were dropped, and its own journal has it.
        """
        epoch = lost.unclean_epoch
        if self._read(partition, self._name(ELECTED, partition, epoch)) is None:
            return
        name = f"{self._name(LOST, partition, epoch)}.{broker_id}"
        before = self._read(partition, name) or {"committed": 0, "ranges": []}
        known = [EpochRange(*one) for one in before["ranges"]]
        ranges = combined([*known, *lost.ranges])
        committed = max(before["committed"], lost.committed_end_offset)
        note = {"committed": committed, "ranges": [list(one) for one in ranges]}
        if note == before:
            return
        self._note(partition, name, note)
        self._decision.report(UncleanLoss(election=self._election(partition, epoch)))

    def caught_up(self, partition: PartitionImage, broker_ids: Collection[int]) -> None:
        """These are in sync: what they had to cut they have told."""
        self._settle(partition, broker_ids, has_told=True)

    def gone(self, partition: PartitionImage, broker_ids: Collection[int]) -> None:
        """These have the log no more that they held records in."""
        self._settle(partition, broker_ids, has_told=False)

    def _settle(
        self, partition: PartitionImage, broker_ids: Collection[int], *, has_told: bool
    ) -> None:
        if not broker_ids:
            return
        for epoch in self._elections(partition):
            name = self._name(ELECTED, partition, epoch)
            note = self._read(partition, name) or {}
            settled = set(broker_ids).intersection(note.get("awaited", ()))
            if settled:
                note["awaited"] = sorted(set(note["awaited"]) - settled)
                if not has_told:
                    note["untold"] = sorted(settled.union(note.get("untold", ())))
                self._note(partition, name, note)

    def describe(self, request: DescribeLossesRequest) -> DescribeLossesResponse:
        """All that is known, oldest first by partition."""
        if request.partitions is None:
            chosen = [
                partition
                for topic in sorted(self._image.notes)
                for _, partition in sorted(self._image.topics[topic].partitions.items())
            ]
        else:
            found = [self._image.partition(name) for name in request.partitions]
            chosen = [partition for partition in found if partition is not None]
        return DescribeLossesResponse(
            elections=tuple(
                self._election(partition, epoch)
                for partition in chosen
                for epoch in self._elections(partition)
            )
        )

    def _election(self, partition: PartitionImage, epoch: int) -> UncleanElection:
        note = self._read(partition, self._name(ELECTED, partition, epoch)) or {}
        prefix = self._name(LOST, partition, epoch) + "."
        lost: list[LostRange] = []
        ranges: list[EpochRange] = []
        committed = 0
        for name in self._image.notes.get(partition.topic.name, {}):
            if not name.startswith(prefix):
                continue
            broker_id = int(name.removeprefix(prefix))
            report = self._read(partition, name) or {}
            committed = max(committed, report["committed"])
            for one in report["ranges"]:
                ranges.append(EpochRange(*one))
                lost.append(LostRange(broker_id=broker_id, range=EpochRange(*one)))
        return UncleanElection(
            topic_partition=partition.name,
            leader_epoch=epoch,
            leader_id=note.get("leader"),
            log_end_offset=note.get("end"),
            lost=combined(ranges),
            committed_end_offset=committed,
            held_by=tuple(sorted(lost, key=lambda one: (one.broker_id, one.range))),
            awaited=tuple(note.get("awaited", ())),
            untold=tuple(note.get("untold", ())),
        )

    def _elections(self, partition: PartitionImage) -> list[int]:
        """The epochs of the unclean elections of a partition, oldest first."""
        prefix = f"{ELECTED}.{partition.name.partition}."
        notes = self._image.notes.get(partition.topic.name, {})
        return sorted(int(name.removeprefix(prefix)) for name in notes if name.startswith(prefix))

    def _keep_only(self, partition: PartitionImage, epochs: Collection[int]) -> None:
        """Drop the notes of the partition's other elections, whatever there is of them."""
        number = str(partition.name.partition)
        for name in list(self._image.notes.get(partition.topic.name, ())):
            for kind in (ELECTED, LOST):
                if name.startswith(f"{kind}.{number}."):
                    epoch = name.removeprefix(f"{kind}.{number}.").partition(".")[0]
                    if int(epoch) not in epochs:
                        self._decision.write(note_of(partition.topic.name, name, None))

    @staticmethod
    def _name(kind: str, partition: PartitionImage, epoch: int) -> str:
        return f"{kind}.{partition.name.partition}.{epoch}"

    def _note(self, partition: PartitionImage, name: str, note: dict[str, Any]) -> None:
        text = json.dumps(note, separators=(",", ":"))
        self._decision.write(note_of(partition.topic.name, name, text))

    def _read(self, partition: PartitionImage, name: str) -> dict[str, Any] | None:
        text = self._image.notes.get(partition.topic.name, {}).get(name)
        return None if text is None else json.loads(text)
