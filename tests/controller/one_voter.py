"""A controller whose quorum is itself: what it decides is in the log and committed at once."""

from replog.controller.controller import Controller
from replog.controller.effects import AppendRecords
from replog.controller.events import Committed, LeadershipGained, RecordsAppended
from replog.controller.metadata_image import MetadataImage
from replog.wire.metadata_values import decode_metadata, encode_metadata


class OneVoter:
    """Steps a controller; `log` holds every record, written to bytes and read back.

    A mirror replays them as any broker would, and must have the same image.
    """

    def __init__(self, options, new_topic_id, **more):
        self.controller = Controller(options, new_topic_id, **more)
        self.log = []
        self.batches = []
        self.mirror = MetadataImage()
        self.commits = True
        self.controller.step(LeadershipGained(controller_epoch=1, end_offset=0), 0)

    def __getattr__(self, name):
        return getattr(self.controller, name)

    def step(self, event, now_ms):
        return self.carry_out(self.controller.step(event, now_ms), now_ms)

    def carry_out(self, effects, now_ms):
        left = []
        for effect in effects:
            if isinstance(effect, AppendRecords):
                left += self._append(effect, now_ms)
            else:
                left.append(effect)
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
        last_offset = len(self.log) - 1
        assert self.controller.step(RecordsAppended(last_offset), now_ms) == []
        if not self.commits:
            return []
        return self.commit(now_ms)

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
