"""A broker's copy of the metadata: what it hands on."""

from __future__ import annotations

from replog.config import LONG_MAX
from replog.registrations import MetadataDelta
from replog.runtime.metadata_batches import leader_change_batch
from replog.runtime.metadata_follower import MetadataFollower
from replog.runtime.quorum_log import QuorumReplicaLog


def test_a_record_that_is_no_metadata_still_tells_how_far_the_copy_is(tmp_path):
    """Another controller, which begins with such a record, waits for brokers to have come so far:
    without it none of those that are fenced or leaving would ever get its answer.
    """
    log = QuorumReplicaLog.open_in(str(tmp_path), lambda: 0)
    told: list[MetadataDelta] = []
    follower = MetadataFollower(
        log,
        lambda: 0,
        deliver=lambda delta, _: told.append(delta),
        leader_changed=lambda *_: None,
        owns_log=True,
        snapshot_interval_bytes=LONG_MAX,
    )
    follower.start(0)
    assert told == []
    log.append_as_leader(leader_change_batch(1, (1,), (1,), 0), 1, coordinator=True)
    log.set_high_watermark(1)
    follower.committed(1, 0)
    follower.committed(1, 0)
    assert told == [MetadataDelta(version=1)]
    log.close()
