"""The quorum on real logs: promises, appends, cuts and snapshots reach the disk in their order."""

from __future__ import annotations

import errno
import json
import os
import shutil

import pytest

from replog._native import recorded_calls
from replog.controller.quorum.incidents import PromiseRefused
from replog.controller.quorum.messages import VoteRequest, VoteResponse
from replog.errors import (
    LogFailedError,
    NoSpaceError,
    OutOfDescriptorsError,
    RecordBatchTooLargeError,
    StorageError,
)
from replog.runtime.metadata_batches import metadata_batch
from replog.types import SnapshotId
from replog.wire.metadata_records import TopicRecord
from tests.runtime.quorum_nodes import WALL_MS, Members, take_snapshot


def quorum_state(world: Members, member_id: int) -> dict:
    path = os.path.join(world.directory(member_id), "__cluster_metadata-0", "quorum-state")
    with open(path) as file:
        return json.load(file)


def test_one_voter_leads_at_once_and_commits_what_it_has_synced(tmp_path) -> None:
    world = Members(tmp_path, voters=(1,))
    only = world[1]
    assert only.leads
    assert only.log.high_watermark == 0, "nothing is committed before it is synced"
    world.settle()
    assert only.log.high_watermark == 1, "the LeaderChange record"
    world.propose("a", "b")
    assert only.heard.appended == {1: 2}
    assert only.heard.high_watermark == 1
    world.settle()
    assert only.heard.high_watermark == 3
    assert only.names() == ["a", "b"]
    assert quorum_state(world, 1) == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": 1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


def test_three_voters_elect_one_and_copy_its_log(tmp_path) -> None:
    world = Members(tmp_path)
    world.elect()
    world.propose("a")
    assert world.pass_time(5000, world.level)
    assert {tuple(member.names()) for member in world.members.values()} == {("a",)}
    epochs = {quorum_state(world, member_id)["leaderEpoch"] for member_id in world.voters}
    assert epochs == {world.leader.node.quorum.leader_epoch}


def test_an_observer_copies_the_log_and_counts_for_nothing(tmp_path) -> None:
    world = Members(tmp_path, voters=(101,), observers=(1, 2))
    world.settle()
    world.propose("a")
    assert world.pass_time(5000, world.level)
    assert world[1].names() == world[2].names() == ["a"]
    world.kill(1)
    world.kill(2)
    world.propose("b", proposal_id=2)
    world.settle()
    assert world[101].heard.high_watermark == 3


def test_a_killed_leader_is_replaced_and_its_unshared_tail_is_cut(tmp_path) -> None:
    world = Members(tmp_path)
    old = world.elect().id
    world.propose("a")
    assert world.pass_time(5000, world.level)
    world.propose("lost", proposal_id=2)
    world.messages.clear()  # nobody hears of it
    world.kill(old)
    new = world.elect()
    assert new.id != old
    world.propose("b", proposal_id=3)
    world.settle()
    assert world.start(old).names() == ["a", "lost"]
    assert world.pass_time(20_000, world.level)
    assert {tuple(member.names()) for member in world.members.values()} == {("a", "b")}


def test_a_vote_survives_the_death_of_the_voter(tmp_path) -> None:
    """Goal: persist before promise. Method: the same epoch is asked for by another candidate."""
    world = Members(tmp_path)
    voter = world[1]
    answers = []
    voter.respond_to_member = lambda _, response: answers.append(response)

    def ask(member, candidate) -> VoteResponse:
        request = VoteRequest(
            candidate_id=candidate, candidate_epoch=9, last_epoch=-1, log_end_offset=0
        )
        member.node._network.respond_to_member = lambda _, response: answers.append(response)
        member.node.receive_request(1, request, world.now_ms)
        return answers[-1]

    assert ask(voter, 2).vote_granted
    assert quorum_state(world, 1)["votedId"] == 2
    world.kill(1)
    assert not ask(world.start(1), 3).vote_granted


@pytest.fixture
def faults():
    """System calls that fail as told."""
    recorded_calls.install()
    yield recorded_calls
    recorded_calls.uninstall()


def fill_for_promises(faults, member_id: int) -> None:
    path = f"node-{member_id}/__cluster_metadata-0/quorum-state"
    faults.fail("pwritev", errno.ENOSPC, path=path)


def test_a_member_that_cannot_persist_its_promise_stops_and_answers_nothing(
    tmp_path, faults
) -> None:
    world = Members(tmp_path)
    voter, answers = world[1], []
    voter.node._network.respond_to_member = lambda _, response: answers.append(response)
    faults.fail("pwritev", errno.EIO, path="quorum-state")
    request = VoteRequest(candidate_id=2, candidate_epoch=9, last_epoch=-1, log_end_offset=0)
    voter.node.receive_request(1, request, world.now_ms)
    assert answers == []
    assert isinstance(voter.node.failed, StorageError)
    assert voter.node.next_deadline_ms is None


def test_a_member_without_room_for_its_promise_gives_none_and_goes_on(
    tmp_path, faults, caplog
) -> None:
    world = Members(tmp_path)
    voter, answers = world[1], []
    voter.node._network.respond_to_member = lambda _, response: answers.append(response)
    fill_for_promises(faults, 1)
    request = VoteRequest(candidate_id=2, candidate_epoch=9, last_epoch=-1, log_end_offset=0)
    for _ in range(2):
        voter.node.receive_request(1, request, world.now_ms)
        assert not answers.pop().vote_granted
    assert voter.node.failed is None
    assert voter.log.read_state() is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert "member 1 has no room for its promise, and neither votes nor leads" in said
    assert "quorum-state" in said
    assert [type(one) for one in voter.heard.incidents] == [PromiseRefused]
    faults.clear_faults()
    voter.node.receive_request(1, request, world.now_ms)
    assert answers.pop().vote_granted
    assert quorum_state(world, 1)["votedId"] == 2


def test_the_only_voter_waits_for_room_and_leads_then(tmp_path, faults) -> None:
    fill_for_promises(faults, 1)
    world = Members(tmp_path, voters=(1,))
    assert not world.pass_time(10_000, lambda: world[1].leads)
    assert world[1].node.failed is None
    assert world[1].log.log_end_offset == 0
    faults.clear_faults()
    assert world.pass_time(5000, lambda: world[1].leads)
    world.propose("a")
    world.settle()
    assert world[1].names() == ["a"]


def test_others_lead_while_a_leaders_disk_is_full_and_it_follows_when_there_is_room(
    tmp_path, faults
) -> None:
    world = Members(tmp_path)
    old = world.elect()
    world.propose("a")
    assert world.pass_time(5000, world.level)
    fill_for_promises(faults, old.id)
    world.cut.add(old.id)
    epoch = old.node.quorum.leader_epoch
    assert world.pass_time(20_000, lambda: world.leader is not old)
    world.cut.clear()
    world.pass_time(5000)
    assert old.node.failed is None
    assert not old.leads
    assert old.node.quorum.leader_epoch == quorum_state(world, old.id)["leaderEpoch"] == epoch
    world.propose("b", proposal_id=2)
    world.settle()
    assert world.leader.log.high_watermark == world.leader.log.log_end_offset
    faults.clear_faults()
    assert world.pass_time(20_000, world.level)
    assert old.names() == ["a", "b"]


@pytest.mark.parametrize("kind", [NoSpaceError, OutOfDescriptorsError])
def test_a_follower_without_room_for_a_cut_cuts_later(tmp_path, kind) -> None:
    world = Members(tmp_path)
    old = world.elect()
    world.propose("a")
    assert world.pass_time(5000, world.level)
    world.propose("lost", proposal_id=2)
    world.messages.clear()  # nobody hears of it
    world.kill(old.id)
    world.elect()
    world.propose("b", proposal_id=3)
    world.settle()
    returned = world.start(old.id)
    cut, refusals = returned.log.truncate_to, [kind("expected room, found none")] * 3

    def truncate_to(offset) -> bool:
        if refusals:
            raise refusals.pop()
        return cut(offset)

    returned.log.truncate_to = truncate_to
    assert world.pass_time(20_000, world.level)
    assert not refusals
    assert returned.names() == ["a", "b"]


def test_a_leader_that_cannot_open_a_file_is_asked_again(tmp_path) -> None:
    world = Members(tmp_path)
    leader = world.elect()
    refusals = [OutOfDescriptorsError("expected a descriptor, found none")] * 3
    read = leader.log.read

    def read_later(*arguments, **options):
        if refusals:
            raise refusals.pop()
        return read(*arguments, **options)

    leader.log.read = read_later
    world.propose("a")
    assert world.pass_time(20_000, world.level)
    assert not refusals
    assert leader.node.failed is None
    assert world[1].names() == world[2].names() == world[3].names() == ["a"]


def test_a_failed_sync_stops_the_member(tmp_path) -> None:
    world = Members(tmp_path, voters=(1,))
    error = LogFailedError("expected a sync to work, found EIO; check the disk")
    world[1].node.flush_completed(error, world.now_ms)
    assert world[1].node.failed is error
    assert world[1].heard.high_watermark == 0


def test_proposals_behind_a_failed_one_are_not_appended(tmp_path) -> None:
    """Goal: offsets that a controller has predicted are right or nothing is appended at all."""
    world = Members(tmp_path, voters=(1,))
    world.settle()
    only = world[1]
    epoch = only.node.quorum.leader_epoch
    batch = metadata_batch([TopicRecord(name="a", topic_id=bytes(16))], WALL_MS)
    heard = only.heard
    log = only.log
    refusals = [RecordBatchTooLargeError("expected a batch that fits, found one that does not")]

    class Full:
        def __getattr__(self, name):
            return getattr(log, name)

        def append_as_leader(self, *arguments, **options):
            if refusals:
                raise refusals.pop()
            return log.append_as_leader(*arguments, **options)

    only.node.log = Full()

    def failed(proposal_id, now_ms) -> None:
        heard.failed.append(proposal_id)
        if proposal_id == 1:
            only.node.propose(2, epoch, batch, now_ms)
            only.node.resign(epoch, now_ms)

    heard.proposal_failed = failed
    only.node.propose(1, epoch, batch, world.now_ms)
    assert heard.failed == [1, 2]
    assert only.names() == []


def test_a_member_far_behind_loads_a_snapshot_and_goes_on(tmp_path) -> None:
    world = Members(tmp_path, fetch_max_bytes=100)
    world.elect()
    world.propose("a", "b", "c")
    assert world.pass_time(5000, world.level)
    away = next(member_id for member_id in world.voters if not world[member_id].leads)
    world.kill(away)
    world.propose("d", proposal_id=2)
    world.settle()
    leader = world.leader
    kept = [TopicRecord(name=name, topic_id=bytes(16)) for name in "abcd"]
    taken = take_snapshot(leader.log, leader.log.high_watermark, kept)
    assert leader.log.log_start_offset == taken.end_offset
    world.propose("e", proposal_id=3)
    returned = world.start(away)
    assert world.pass_time(20_000, world.level)
    assert returned.heard.snapshots == [taken]
    assert returned.names() == ["e"]
    assert returned.log.latest_snapshot == taken
    size = returned.log.snapshot_size(taken)
    snapshots = (leader.log.snapshots, returned.log.snapshots)
    assert len({store.read(taken, 0, size) for store in snapshots}) == 1


def test_a_damaged_snapshot_is_refused_and_fetched_again(tmp_path) -> None:
    world = Members(tmp_path, voters=(101,), observers=(1,))
    world.settle()
    world.propose("a")
    assert world.pass_time(5000, world.level)
    world.kill(1)
    leader = world[101]
    kept = [TopicRecord(name="a", topic_id=bytes(16))]
    taken = take_snapshot(leader.log, leader.log.high_watermark, kept)
    snapshots = leader.log.snapshots
    whole = snapshots.read
    bad = [b"\0" * snapshots.sizes[taken]]
    snapshots.read = lambda *arguments: bad.pop() if bad else whole(*arguments)
    shutil.rmtree(world.directory(1))
    world.start(1)
    assert world.pass_time(20_000, world.level)
    assert not bad
    assert world[1].log.latest_snapshot == taken
    size = snapshots.sizes[taken]
    assert world[1].log.snapshots.read(taken, 0, size) == whole(taken, 0, size)


@pytest.mark.parametrize("kept", ["all", "snapshot alone"])
def test_a_directory_opens_again_where_it_stood(tmp_path, kept) -> None:
    world = Members(tmp_path, voters=(1,))
    world.settle()
    world.propose("a", "b")
    world.settle()
    log = world[1].log
    if kept == "snapshot alone":
        records = [TopicRecord(name=name, topic_id=bytes(16)) for name in "ab"]
        assert take_snapshot(log, 3, records) == SnapshotId(3, 1)
    log.close()
    del world.members[1]
    again = world.start(1)
    assert again.leads
    assert again.node.quorum.leader_epoch == 2
    world.settle()
    assert again.log.high_watermark == 4
    assert again.names() == (["a", "b"] if kept == "all" else [])
