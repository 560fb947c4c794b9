"""The rules of the high watermark, exhausted on small spaces against the plainest wording."""

from __future__ import annotations

import itertools

import pytest

from replog.errors import InvariantViolation
from replog.replication.high_watermark import follower_high_watermark, leader_high_watermark


def every_isr_of_three():
    for size in range(3):
        yield from itertools.combinations((2, 3), size)


def test_leader_high_watermark_is_the_smallest_end_of_the_isr_for_every_isr_and_every_end():
    ends = (None, 0, 1, 2, 3)
    for leader_end in range(4):
        for current in range(leader_end + 1):
            for isr in every_isr_of_three():
                for pair in itertools.product(ends, repeat=2):
                    end_of = {1: leader_end, **dict(zip((2, 3), pair, strict=True))}
                    found = leader_high_watermark(
                        current, leader_end, [end_of[replica_id] for replica_id in isr]
                    )
                    dumb = current
                    for offset in range(leader_end + 1):
                        in_sync = [end_of[replica_id] for replica_id in (1, *isr)]
                        if all(end is not None and end >= offset for end in in_sync):
                            dumb = max(dumb, offset)
                    assert found == dumb, (current, end_of, isr)


def test_leader_high_watermark_stands_while_a_replica_of_the_isr_has_not_fetched_yet():
    assert leader_high_watermark(1, 3, [3, None]) == 1


def test_leader_high_watermark_beyond_the_log_is_a_bug():
    with pytest.raises(InvariantViolation):
        leader_high_watermark(4, 3, [])


def test_follower_high_watermark_is_the_leaders_within_its_own_log_for_every_small_log():
    for log_start, log_end, leader in itertools.product(range(4), repeat=3):
        if log_start <= log_end:
            found = follower_high_watermark(leader, log_start, log_end)
            assert found == sorted((log_start, leader, log_end))[1]
