"""Bugs of the engine to be planted: each takes one guard, one sync or one step away."""

from __future__ import annotations

from typing import NamedTuple


class Bug(NamedTuple):
    """`text` stands once in `file`; `instead` is planted in its place."""

    name: str
    file: str
    text: str
    instead: str


LOG = "replog/_native/log.pyx"
APPENDABLE = "replog/_native/appendable_log.pyx"
BUGS = (
    Bug(
        "cut-without-a-sync",
        LOG,
        "            segment.flush_records()\n            kept_end",
        "            kept_end",
    ),
    Bug(
        "cut-keeps-the-recovery-point",
        LOG,
        "        self.keeper.lower_recovery_point(kept_end)\n",
        "",
    ),
    Bug(
        "cut-leaves-later-segments",
        LOG,
        "        self.drop_from(place + 1, now)\n        self.dense",
        "        self.dense",
    ),
    Bug(
        "cut-keeps-the-synced-end",
        LOG,
        "        self.recovered_to = min(self.recovered_to, kept_end)\n",
        "",
    ),
    Bug(
        "cut-keeps-producers",
        LOG,
        "        self.drop_snapshots(offset)\n        self.replay_producers(offset, now)\n",
        "",
    ),
    Bug(
        "flush-without-names",
        LOG,
        "            if names:\n                mapped_file",
        "            if False:\n                mapped_file",
    ),
    Bug(
        "flush-leaves-the-first-file",
        LOG,
        "            for segment, file in noted:\n",
        "            for segment, file in noted[1:]:\n",
    ),
    Bug(
        "commit-takes-its-target-late",
        LOG,
        "                self.durable_end = max(self.durable_end, target)\n",
        "                self.durable_end = self.log_end_offset\n"
        "                self.recovered_to = self.log_end_offset\n",
    ),
    Bug(
        "restart-keeps-the-recovery-point", LOG, "        self.keeper.lower_recovery_point(0)\n", ""
    ),
    Bug(
        "restart-keeps-epochs",
        LOG,
        "        self.epochs.clear()\n        # Replacing",
        "        # Replacing",
    ),
    Bug(
        "delete-records-writes-late",
        LOG,
        "        tried, self.start_tried = self.start_tried, offset\n",
        "        tried, self.start_tried = self.start_tried, offset\n"
        "        self.log_start_offset = offset\n",
    ),
    Bug(
        "delete-records-is-not-written",
        LOG,
        "            self.keeper.write_log_start(offset)\n        except NoSpaceError",
        "            pass\n        except NoSpaceError",
    ),
    Bug(
        "retention-above-the-high-watermark",
        LOG,
        "self.high_watermark < end_offset or (place",
        "self.log_end_offset < end_offset or (place",
    ),
    Bug(
        "retention-keeps-the-log-start",
        LOG,
        "            self.move_log_start(self.segments.base(count))\n",
        "",
    ),
    Bug(
        "refused-marker-stays",
        APPENDABLE,
        "            self.take_back(active, position, start_offset)\n",
        "",
    ),
    Bug(
        "refused-epochs-stay",
        APPENDABLE,
        "                self.restore_epochs(before)\n            raise\n",
        "                pass\n            raise\n",
    ),
    Bug(
        "refused-parts-stay",
        APPENDABLE,
        "            self.truncate_locked(offset)\n            self.restore",
        "            self.restore",
    ),
    Bug(
        "epochs-behind-their-batch",
        APPENDABLE,
        "            self.keeper.write_epochs(self)\n            self.epochs_owed = False\n",
        "            self.epochs_owed = False\n",
    ),
    Bug("roll-forgets-its-names", APPENDABLE, "        self.names_unsynced = True\n", ""),
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
        "    log.names_unsynced = log.tail_unsynced = not clean\n",
        "    log.tail_unsynced = not clean\n",
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
        "        cut_tail(log, place, report, rules, position, last + 1, outcome, writing)\n",
        "        cut_tail(log, place, report, rules, position, last + 1, outcome, writing)\n"
        "        last += 1\n",
    ),
    Bug(
        "recovered-end-counts-a-cut-segment",
        "replog/_native/log_recovery.pyx",
        "            note_hole(log, place, end_offset, report, rules)\n"
        "        log.log_end_offset = end_offset\n",
        "            note_hole(log, place, end_offset, report, rules)\n"
        "            end_offset = segment.base_offset\n"
        "        log.log_end_offset = end_offset\n",
    ),
    Bug(
        "cut-of-a-dead-process-is-not-synced",
        "replog/_native/log_recovery.pyx",
        "    log.names_unsynced = log.tail_unsynced = not clean\n",
        "    log.names_unsynced = not clean\n",
    ),
    Bug(
        "reader-skips-a-batch-behind-a-hole",
        "replog/_native/readable_log.pyx",
        "            self.check_joined(segments, place)\n            place += 1\n"
        "        return self.empty",
        "            self.check_joined(segments, place)\n            place += 1\n"
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
        LOG,
        "        mapped_file.fsync_dir(self.path)\n        self.segments = SegmentList((self.new",
        "        self.segments = SegmentList((self.new",
    ),
    Bug(
        "refused-set-leaves-its-segment",
        "replog/_native/follower_log.pyx",
        "            if active.base_offset > self.log_end_offset:\n",
        "            if False:\n",
    ),
    Bug(
        "uncertain-log-start-forgotten",
        LOG,
        "        if self.start_tried > start_offset:\n",
        "        if False:\n",
    ),
)
