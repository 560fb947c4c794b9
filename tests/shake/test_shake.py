"""The judge of `make shake` sees what is planted, and says nothing of what is whole."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from pathlib import Path

import pytest

import replog
from replog.config import LogConfig
from replog.storage.kafka_uuid import format_uuid
from tests.shake import checker, raw_files, story
from tests.shake.book import Book
from tests.shake.diary import Diary, entries
from tests.shake.plan import draw
from tests.shake.records import Tag, tag_of, value_of

SEED = 7
COUNT = 40


def written(directory: Path) -> Path:
    """A story's directory after one life: a topic on three brokers, sends of one record each."""
    diary = Diary(directory / "diary.jsonl")

    async def produce() -> None:
        cluster = replog.LocalCluster(3, directory=directory / "cluster")
        async with cluster:
            config = LogConfig(segment_bytes=2000)
            await cluster.create_topic("a", config=config, min_insync_replicas=2)
            topic_id = format_uuid(cluster.registration("a").topic_id)
            diary.note("life", life=0, kind="close")
            diary.note("topic", id=topic_id, name="a", unclean=False)
            for send in range(COUNT):
                diary.note("send", s=send, id=topic_id, p=0, n=1, a="all")
                produced = await cluster.produce("a", [value_of(Tag(SEED, send, 0))])
                base, last = produced.base_offset, produced.last_offset
                diary.note("ack", s=send, id=topic_id, b=base, l=last)
            await cluster.in_sync("a")
            diary.note(
                "settled", id=topic_id, name="a-0", p=0, replicas=[1, 2, 3], waits=None, whole=True
            )

    asyncio.run(produce())
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("story"))


@pytest.fixture
def tried(whole, tmp_path) -> Path:
    shutil.copytree(whole, tmp_path / "story")
    return tmp_path / "story"


def found_in(directory: Path, *more: dict) -> list[str]:
    book = Book()
    book.read([*entries(directory / "diary.jsonl"), *more])
    copies = raw_files.read_cluster(directory / "cluster")
    contents = checker.Contents(copies, book, SEED)
    checker.check_at_rest(book, copies, contents)
    checker.check_settled(book, copies, contents)
    return [violation.rule for violation in book.violations]


def test_what_is_whole_is_not_blamed(tried):
    assert found_in(tried) == []
    [held] = raw_files.read_cluster(tried / "cluster").values()
    assert {broker: copy.end for broker, copy in held.items()} == dict.fromkeys((1, 2, 3), COUNT)


def test_a_record_that_no_copy_holds_is_lost(tried):
    """Segments behind the first are gone from each broker, as after a cut too many."""
    for segment in (tried / "cluster").glob("broker-*/a-0/*.log"):
        if int(segment.stem):
            segment.unlink()
    assert found_in(tried)[0] == "lost"


def test_one_copy_that_is_short_is_apart_from_the_others(tried):
    last = max((tried / "cluster" / "broker-2" / "a-0").glob("*.log"))
    last.unlink()
    assert set(found_in(tried)) == {"apart", "lost"}


def test_a_record_of_another_topic_is_foreign(tried):
    [topic_id] = {name[0] for name in raw_files.read_cluster(tried / "cluster")}
    seen = {"k": "read", "r": 9, "id": "new", "p": 0, "seen": [[0, 3, 0]], "strange": []}
    story_goes_on = (
        {"k": "gone", "id": topic_id, "name": "a"},
        {"k": "topic", "id": "new", "name": "a", "unclean": False},
        {"k": "open", "r": 9, "id": "new", "p": 0},
        seen,
    )
    assert found_in(tried, *story_goes_on) == ["foreign"]


def test_a_record_below_an_answered_low_watermark_is_deleted(tried):
    [topic_id] = {name[0] for name in raw_files.read_cluster(tried / "cluster")}
    low = {"k": "low", "id": topic_id, "p": 0, "o": 10}
    cut = {"k": "cut", "id": topic_id, "p": 0, "o": 10}
    assert set(found_in(tried, cut, low)) == {"deleted"}
    opened = {"k": "open", "r": 9, "id": topic_id, "p": 0}
    seen = {"k": "read", "r": 9, "id": topic_id, "p": 0, "seen": [[9, 9, 0]], "strange": []}
    book = Book()
    book.read([*entries(tried / "diary.jsonl"), cut, opened, seen])
    assert not book.violations, "the read began before the answer"
    book = Book()
    book.read([*entries(tried / "diary.jsonl"), cut, low, opened, seen])
    assert [violation.rule for violation in book.violations] == ["deleted"]


def test_an_offset_that_held_something_else_is_reused(tried):
    [topic_id] = {name[0] for name in raw_files.read_cluster(tried / "cluster")}
    opened = {"k": "open", "r": 9, "id": topic_id, "p": 0}
    seen = {"k": "read", "r": 9, "id": topic_id, "p": 0, "seen": [[5, 6, 0]], "strange": []}
    assert found_in(tried, opened, seen) == ["reused"]


def test_a_changed_byte_is_no_torn_end(tried):
    first = min((tried / "cluster" / "broker-2" / "a-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    assert "damaged" in found_in(tried)


def test_a_partition_waits_only_for_what_was_changed(tried):
    [topic_id] = {name[0] for name in raw_files.read_cluster(tried / "cluster")}
    waits = {"k": "settled", "id": topic_id, "name": "a-0", "p": 0, "replicas": [1, 2, 3]}
    assert found_in(tried, {**waits, "waits": "for 2", "whole": False}) == ["stuck"]


def test_values_tell_where_they_come_from():
    tag = Tag(3, 14, 1)
    assert tag_of(value_of(tag)) == tag
    assert tag_of(value_of(tag)[:-1]) is None
    assert tag_of(None) is None


@pytest.mark.slow
def test_a_story_holds(tmp_path):
    plan = dataclasses.replace(draw(5), brokers=3, lives=2, life_s=1.0)
    told = story.play(plan, tmp_path / "story")
    assert not told.violations, told.violations
    assert told.lives == 3
    assert told.acknowledged > 50
