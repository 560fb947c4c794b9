"""Where two logs part: each case of the tables, then every pair of small histories."""

from __future__ import annotations

import itertools

import pytest

from replog.divergence import Truncation, check_claim, truncation_for
from replog.messages import ErrorCode
from replog.replication.incidents import LogTruncated
from replog.types import EpochEndOffset
from tests.replication.core_cluster import CoreCluster
from tests.replication.memory_log import MemoryLog

LATEST_OLD_EPOCH = 3
RECORDS_MAX = 4
NEW_EPOCH = LATEST_OLD_EPOCH + 1


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "expected"),
    [
        (2, 1, None),
        (3, 1, None),
        (5, 3, None),
        (4, 1, EpochEndOffset(1, 3)),
        (3, 2, EpochEndOffset(1, 3)),
        (6, 3, EpochEndOffset(3, 5)),
        (5, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (5, -1, None),
        (6, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_leader_judges_a_claim_by_offset_and_epoch(fetch_offset, last_fetched_epoch, expected):
    """The leader's log: offsets 1 and 2 of epoch 1, 3 and 4 of epoch 3."""
    log = MemoryLog([1, 1, 3, 3], start=1)
    assert check_claim(log, fetch_offset, last_fetched_epoch) == expected


def test_case_1_an_undefined_end_at_the_leader_truncates_to_the_fetch_offset():
    log = MemoryLog([1, 1, 1])
    assert truncation_for(log, EpochEndOffset(-1, -1), 2) == Truncation(2, complete=True)


def test_case_2_an_undefined_epoch_at_the_leader_truncates_to_its_end():
    log = MemoryLog([1, 1, 1])
    assert truncation_for(log, EpochEndOffset(-1, 2), 3) == Truncation(2, complete=True)
    assert truncation_for(log, EpochEndOffset(-1, 9), 3) == Truncation(3, complete=True)


def test_case_3_an_epoch_newer_than_all_of_ours_truncates_to_the_leaders_end():
    log = MemoryLog([1, 1, 1])
    assert truncation_for(log, EpochEndOffset(2, 2), 3) == Truncation(2, complete=True)
    assert truncation_for(log, EpochEndOffset(2, 9), 3) == Truncation(3, complete=True)


def test_case_4_a_shared_epoch_truncates_to_the_smaller_end_of_it():
    log = MemoryLog([1, 1, 1, 2])
    assert truncation_for(log, EpochEndOffset(1, 2), 4) == Truncation(2, complete=True)
    assert truncation_for(log, EpochEndOffset(1, 9), 4) == Truncation(3, complete=True)


def test_case_5_an_epoch_that_we_lack_truncates_our_newer_ones_and_asks_again():
    log = MemoryLog([1, 1, 3, 3])
    assert truncation_for(log, EpochEndOffset(2, 4), 4) == Truncation(2, complete=False)


def histories() -> list[tuple[int, ...]]:
    """Epochs by offset: never falling, of every length."""
    return [
        epochs
        for length in range(RECORDS_MAX + 1)
        for epochs in itertools.combinations_with_replacement(range(LATEST_OLD_EPOCH + 1), length)
    ]


def could_both_exist(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """One leader per epoch: it began at one offset, and whoever has its records has those below."""
    for epoch in set(one) & set(other):
        start = one.index(epoch)
        if other.index(epoch) != start or one[:start] != other[:start]:
            return False
    return True


def common_prefix(one, other) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in pairs)


def test_after_fetching_to_the_end_the_logs_are_equal_for_every_pair_of_small_histories():
    """The property that KIP-101 and KIP-279 were written for.

    Leader and follower carry any two histories that one leader per epoch can leave behind. The
    follower may also have led an epoch without appending (an entry at its end, KAFKA-10706).
    """
    pairs = 0
    for leader_epochs, follower_epochs in itertools.product(histories(), repeat=2):
        if not could_both_exist(leader_epochs, follower_epochs):
            continue
        for empty_epoch in (None, *range(max(follower_epochs, default=-1) + 1, NEW_EPOCH)):
            if empty_epoch is not None and empty_epoch in leader_epochs:
                continue
            pairs += 1
            leader, follower = MemoryLog(leader_epochs), MemoryLog(follower_epochs)
            shared = common_prefix(leader_epochs, follower_epochs)
            follower.high_watermark = shared
            if empty_epoch is not None:
                follower.assign_epoch(empty_epoch, follower.log_end_offset)
            cluster = CoreCluster({1: leader, 2: follower})
            cluster.lead(1, NEW_EPOCH, (1, 2))
            cluster.produce(1, "new")
            cluster.settle()
            cluster.tick(500)
            cluster.settle()
            case = (leader_epochs, follower_epochs, empty_epoch)
            assert follower.records == leader.records, case
            assert follower.epoch_entries == leader.epoch_entries, case
            assert follower.high_watermark == leader.log_end_offset, case
            assert all(cut.new_end_offset >= shared for cut in cluster.incidents(LogTruncated)), (
                case
            )
    assert pairs > 3000
