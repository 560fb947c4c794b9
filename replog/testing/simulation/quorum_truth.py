"""What is true of the controllers' quorum, kept apart from the code under test.

Built from what members' logs were told, what was promised on their disks and what they said. A
record is committed when a leader first says so; `committed` holds the batches in order and never
changes, and the image is what a replay of them gives.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias, cast

from replog.controller.metadata_image import MetadataImage
from replog.registrations import MetadataDelta
from replog.testing.simulation.batches import StoredBatch
from replog.testing.simulation.sim_metadata_log import Messages, SimMetadataLog

if TYPE_CHECKING:
    from replog.testing.simulation.sim_controller import SimController

Run: TypeAlias = tuple[int, int]
"""A node, and which of its incarnations."""


class QuorumTruth:
    """The quorum of one run."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        self.voters = voters
        self.majority = len(voters) // 2 + 1
        self.controllers: dict[int, SimController] = {}
        self.committed: list[StoredBatch] = []
        self._bases: list[int] = []
        self.end_offset = 0
        """Offsets below it are committed."""
        self.image = MetadataImage()
        """What is committed."""
        self.leader_of_epoch: dict[int, Run] = {}
        """Who has begun each epoch by a record of its own."""
        self.latest_epoch = 0
        """Of those."""

    @property
    def leader_id(self) -> int:
        """Who began the latest epoch; the first voter as long as nobody has."""
        return self.leader_of_epoch.get(self.latest_epoch, (self.voters[0], 0))[0]

    def leads(self, log: SimMetadataLog, epoch: int) -> bool:
        """Whether the log is that of the leader of an epoch."""
        return self.leader_of_epoch.get(epoch, (-1, -1))[0] == log.broker_id

    def log_of(self, voter_id: int) -> SimMetadataLog:
        return self.controllers[voter_id].disk.metadata

    def committed_before(self, epoch: int) -> int:
        """Where what earlier epochs have committed ends."""
        place = bisect.bisect_left(self.committed, epoch, key=lambda batch: batch.leader_epoch)
        return self._bases[place] if place < len(self._bases) else self.end_offset

    def committed_at(self, offset: int) -> StoredBatch | None:
        """The committed batch that holds `offset`."""
        place = bisect.bisect_right(self._bases, offset) - 1
        if place < 0 or self.committed[place].last_offset < offset:
            return None
        return self.committed[place]

    def holds(self, log: SimMetadataLog, end_offset: int) -> bool:
        """Whether a log has the committed records below `end_offset`, or a snapshot of them.

        The last batch stands for those before it: logs match.
        """
        if end_offset <= log.log_start_offset:
            return True
        return log.batch_at(end_offset - 1) is self.committed_at(end_offset - 1)

    def commit(self, fresh: list[StoredBatch]) -> Iterator[MetadataDelta]:
        """Take the next committed batches; yields what each has changed."""
        for batch in fresh:
            self.committed.append(batch)
            self._bases.append(batch.base_offset)
            self.end_offset = batch.last_offset + 1
            content = cast("Messages", batch.content)
            for offset, message in enumerate(content.messages, batch.base_offset):
                self.image.apply(message, offset)
            self.image.end_offset = self.end_offset
            delta = self.image.take_delta()
            if delta is not None:
                yield delta
