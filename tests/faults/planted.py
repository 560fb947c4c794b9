"""Bugs of the engine to be planted: each takes one guard, one sync or one step away."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """`text` stands once in `file`; `instead` is planted in its place."""

    name: str
    file: str
    text: str
    instead: str


CUT = "replog/_native/log_cut.pyx"
SYNC = "replog/_native/log_sync.pyx"
START = "replog/_native/log_start.pyx"
RETENTION = "replog/_native/log_retention.pyx"
WRITER = "replog/_native/log_writer.pyx"
EPOCH_FILE = "replog/_native/epoch_file.pyx"
BUGS = (
    Bug(
        "cut-without-a-sync",
        CUT,
        "            segment.flush_records()\n            kept_end",
        "            kept_end",
    ),
    Bug(
        "cut-keeps-the-recovery-point",
        CUT,
        "        state.keeper.lower_recovery_point(kept_end)\n",
        "",
    ),
    Bug(
        "cut-leaves-later-segments",
        CUT,
        "        self.drop_from(place + 1, now)\n        state.dense",
        "        state.dense",
    ),
    Bug(
        "cut-keeps-the-synced-end",
        CUT,
        "        state.recovered_to = min(state.recovered_to, kept_end)\n",
        "",
    ),
    Bug(
        "cut-keeps-producers",
        CUT,
        "        self.producers.drop_snapshots(offset)\n"
        "        self.producers.replay(offset, now)\n",
        "",
    ),
    Bug(
        "flush-without-names",
        SYNC,
        "            if names:\n                mapped_file",
        "            if False:\n                mapped_file",
    ),
    Bug(
        "flush-leaves-the-first-file",
        SYNC,
        "            for segment, file in noted:\n",
        "            for segment, file in noted[1:]:\n",
    ),
    Bug(
        "commit-takes-its-target-late",
        SYNC,
        "                state.durable_end = max(state.durable_end, target)\n",
        "                state.durable_end = state.log_end_offset\n"
        "                state.recovered_to = state.log_end_offset\n",
    ),
    Bug(
        "restart-keeps-the-recovery-point",
        CUT,
        "        state.keeper.lower_recovery_point(0)\n",
        "",
    ),
    Bug(
        "restart-keeps-epochs",
        CUT,
        "        state.epochs.clear()\n        # Replacing",
        "        # Replacing",
    ),
    Bug(
        "delete-records-writes-late",
        START,
        "        tried, self.tried = self.tried, offset\n",
        "        tried, self.tried = self.tried, offset\n        state.log_start_offset = offset\n",
    ),
    Bug(
        "delete-records-is-not-written",
        START,
        "            state.keeper.write_log_start(offset)\n        except NoSpaceError",
        "            pass\n        except NoSpaceError",
    ),
    Bug(
        "retention-above-the-high-watermark",
        RETENTION,
        "state.committed_end() < end_offset or (",
        "state.log_end_offset < end_offset or (",
    ),
    Bug(
        "retention-keeps-the-log-start",
        RETENTION,
        "            self.start.move(state.segments.base(count))\n",
        "",
    ),
    Bug(
        "refused-marker-stays",
        WRITER,
        "            self.take_back(active, position, start_offset)\n",
        "",
    ),
    Bug(
        "refused-epochs-stay",
        WRITER,
        "                self.epoch_file.restore(before)\n            raise\n",
        "                pass\n            raise\n",
    ),
    Bug(
        "refused-parts-stay",
        WRITER,
        "            self.cut.within(offset)\n            self.epoch_file.restore",
        "            self.epoch_file.restore",
    ),
    Bug(
        "epochs-behind-their-batch",
        EPOCH_FILE,
        "            self.state.keeper.write_epochs(self.state)\n            self.owed = False\n",
        "            self.owed = False\n",
    ),
    Bug(
        "roll-forgets-its-names",
        "replog/_native/segment_maker.pyx",
        "        state.names_unsynced = True\n",
        "",
    ),
    Bug(
        "epochs-cut-one-off",
        "replog/_native/leader_epoch_cache.pyx",
        "self.start_offsets[dropped] <= start_offset:\n            dropped",
        "self.start_offsets[dropped] < start_offset:\n            dropped",
    ),
    Bug(
        "a-change-cut-short-goes-on",
        "replog/_native/log_guard.pyx",
        "            self.changing = 0\n            self.failed = True\n",
        "            self.changing = 0\n",
    ),
    Bug(
        "names-after-a-kill",
        "replog/_native/log_recovery.pyx",
        "    state.names_unsynced = state.tail_unsynced = not clean\n",
        "    state.tail_unsynced = not clean\n",
    ),
    Bug(
        "uncertain-checkpoint-forgotten",
        "replog/storage/log_checkpoints.py",
        "            self._recovery_point = max(self._recovery_point, offset)\n",
        "",
    ),
    Bug(
        "failed-log-loses-its-start",
        "replog/storage/log_directory.py",
        "if key not in last}",
        "if key in self.refused}",
    ),
    Bug(
        "recovered-end-counts-a-cut-batch",
        "replog/_native/segment_recovery.pyx",
        "        cut_tail(state, place, report, rules, position, last + 1, outcome, writing)\n",
        "        cut_tail(state, place, report, rules, position, last + 1, outcome, writing)\n"
        "        last += 1\n",
    ),
    Bug(
        "recovered-end-counts-a-cut-segment",
        "replog/_native/log_recovery.pyx",
        "            note_hole(state, place, end_offset, report, rules)\n"
        "        state.log_end_offset = end_offset\n",
        "            note_hole(state, place, end_offset, report, rules)\n"
        "            end_offset = segment.base_offset\n"
        "        state.log_end_offset = end_offset\n",
    ),
    Bug(
        "cut-of-a-dead-process-is-not-synced",
        "replog/_native/log_recovery.pyx",
        "    state.names_unsynced = state.tail_unsynced = not clean\n",
        "    state.names_unsynced = not clean\n",
    ),
    Bug(
        "reader-skips-a-batch-behind-a-hole",
        "replog/_native/log_lookup.pyx",
        "            state.check_joined(segments, place)\n            place += 1\n"
        "        return self.empty",
        "            state.check_joined(segments, place)\n            place += 1\n"
        "            if place < len(segments):\n"
        "                segment = segments[place]\n"
        "                if segment.find(start_offset, &header):\n"
        "                    start_offset = header.last_offset + 1\n"
        "        return self.empty",
    ),
    Bug(
        "time-index-takes-equal-times",
        "replog/_native/time_index.pyx",
        "        if timestamp <= self.last_timestamp:\n            return 0\n",
        "",
    ),
    Bug(
        "look-that-failed-found-nothing",
        "replog/_native/transaction_index.pyx",
        "            try:\n                self.file = MappedFile(self.path, writable=True)\n",
        "            self.looked = True\n"
        "            try:\n                self.file = MappedFile(self.path, writable=True)\n",
    ),
    Bug(
        "new-segment-beside-those-it-replaces",
        CUT,
        "        mapped_file.fsync_dir(state.path)\n"
        "        state.segments = SegmentList((self.maker",
        "        state.segments = SegmentList((self.maker",
    ),
    Bug(
        "refused-set-leaves-its-segment",
        "replog/_native/log_follower.pyx",
        "            if active.base_offset > state.log_end_offset:\n",
        "            if False:\n",
    ),
    Bug(
        "uncertain-log-start-forgotten",
        START,
        "        if self.tried > self.state.log_start_offset:\n",
        "        if False:\n",
    ),
)
