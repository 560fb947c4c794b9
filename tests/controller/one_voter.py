"""A controller whose quorum is itself: what it decides is in the log and committed at once."""

from replog.controller.controller import Controller
from replog.controller.effects import AppendRecords
from replog.controller.events import Committed, LeadershipGained, RecordsAppended
from replog.controller.metadata_image import MetadataImage
from replog.registrations import MetadataDelta
from replog.wire.metadata_values import decode_metadata, encode_metadata


class Follower:
    """A broker's copy of the metadata: takes what is committed, and hands on what that changes."""

    def __init__(self):
        self.image = MetadataImage()

    def take(self, log, end_offset):
        """What the records up to there change, as one delta; None if there are no more of them."""
        before = self.image.end_offset
        for offset in range(before, end_offset):
            self.image.apply(log[offset], offset)
        delta = self.image.take_delta()
        if delta is None and end_offset > before:
            return MetadataDelta(version=end_offset)
        return delta


class OneVoter:
    """Steps a controller; `log` holds every record, written to bytes and read back.

    A mirror replays them as any broker would, and must have the same image.
    """

    def __init__(self, options, new_topic_id, **more):
        self.options = options
        self._make = lambda: Controller(options, new_topic_id, **more)
        self.controller = self._make()
        self.log = []
        self.batches = []
        self.mirror = MetadataImage()
        self.commits = True
        self.controller.step(LeadershipGained(controller_epoch=1, end_offset=0), 0)

    def __getattr__(self, name):
        return getattr(self.controller, name)

    def step(self, event, now_ms):
        return self.carry_out(self.controller.step(event, now_ms), now_ms)

    def take_over(self, log, now_ms=0, epoch=2):
        """Another controller has replayed this log, and leads from its end."""
        self.controller = self._make()
        self.mirror = MetadataImage()
        self.log = list(log)
        for offset, record in enumerate(log):
            self.controller.apply(record, offset)
            self.mirror.apply(record, offset)
        gained = LeadershipGained(controller_epoch=epoch, end_offset=len(log))
        return self.step(gained, now_ms)

    def carry_out(self, effects, now_ms):
        """All effects of a step come before whatever they lead to."""
        left = []
        while effects:
            appends = [effect for effect in effects if isinstance(effect, AppendRecords)]
            left += [effect for effect in effects if not isinstance(effect, AppendRecords)]
            assert len(appends) <= 1
            effects = []
            for append in appends:
                self._append(append, now_ms)
                if self.commits:
                    effects = self.controller.step(Committed(len(self.log)), now_ms)
        return left

    def _append(self, effect, now_ms):
        assert effect.base_offset == len(self.log)
        assert effect.records
        for record in effect.records:
            value = encode_metadata(record, type(record).HIGHEST_VERSION)
            found = decode_metadata(value).message
            assert found == record
            self.mirror.apply(found, len(self.log))
            self.log.append(found)
        self.batches.append(effect.records)
        assert self.controller.step(RecordsAppended(len(self.log) - 1), now_ms) == []

    def commit(self, now_ms):
        """Everything in the log is committed."""
        return self.carry_out(self.controller.step(Committed(len(self.log)), now_ms), now_ms)


def assert_same_image(one, other):
    """Both say the same, and so do their indexes and their snapshots."""
    assert list(one.snapshot_records()) == list(other.snapshot_records())
    for found in (one, other):
        partitions = list(found.partitions())
        assert set(found.leaderless) == {held for held in partitions if held.leader_id is None}
        assert set(found.reassigning) == {held for held in partitions if held.reassigning}
        for broker_id, held in found.held_by.items():
            assert set(held) == {one for one in partitions if broker_id in one.replicas}
    again = MetadataImage()
    again.load(other.snapshot_records(), other.end_offset)
    assert list(again.snapshot_records()) == list(other.snapshot_records())
    assert {held.name: held.registration for held in again.partitions()} == {
        held.name: held.registration for held in other.partitions()
    }
    assert again.end_offset == other.end_offset
