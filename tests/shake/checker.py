"""Holds the raw files of a cluster that stands still against what its book says is owed."""

from __future__ import annotations

from collections import Counter

from tests.shake.book import Book, Partition, Record
from tests.shake.clients import SENDS_PER_LIFE
from tests.shake.raw_files import RawCopy
from tests.shake.records import tag_of

Copies = dict[Partition, dict[int, RawCopy]]


class Contents:
    """Records of each copy, by offset; what is no record of the story's is told once."""

    def __init__(self, copies: Copies, book: Book, seed: int) -> None:
        self.by_copy: dict[tuple[Partition, int], dict[int, Record]] = {}
        for partition, held in copies.items():
            for broker, copy in held.items():
                found = self.by_copy[partition, broker] = {}
                for offset, value in copy.values().items():
                    tag = tag_of(value)
                    if tag is None or tag.seed != seed:
                        book.blame("bytes", f"{copy.path}: offset {offset} holds {value!r:.80}")
                        break
                    found[offset] = (tag.send, tag.place)

    def of(self, partition: Partition, broker: int) -> dict[int, Record]:
        return self.by_copy.get((partition, broker), {})


def holds_all(owed: dict[int, Record], held: dict[int, Record]) -> bool:
    return owed.items() <= held.items()


def check_at_rest(book: Book, copies: Copies, contents: Contents) -> None:
    """After any life: nothing owed is gone from every copy that the story has not touched."""
    for partition, held in copies.items():
        for copy in held.values():
            if copy.problem is not None and copy.broker not in book.tampered.get(partition, ()):
                book.blame("damaged", copy.problem)
    for partition, owed in book.owed.items():
        topic = book.topics[partition[0]]
        if topic.gone or not owed:
            continue
        brokers = copies.get(partition, {})
        touched = book.tampered.get(partition, set())
        for broker in sorted(touched & brokers.keys()):
            if holds_all(owed, contents.of(partition, broker)):
                touched.discard(broker)
        good = [contents.of(partition, broker) for broker in brokers.keys() - touched]
        if topic.unclean:
            continue
        missing = [
            offset
            for offset, record in owed.items()
            if not any(held.get(offset) == record for held in good)
        ]
        if missing:
            ends = {
                broker: f"[{copy.start}, {copy.end}){' changed' if broker in touched else ''}"
                for broker, copy in brokers.items()
            }
            first = min(missing)
            book.blame(
                "lost",
                f"{topic.name}-{partition[1]} {partition[0]}: {len(missing)} records from {first} "
                f"to {max(missing)} (the first is {owed[first]}) are in none of {ends}",
            )
            for offset in missing:  # told once
                del owed[offset]


def check_settled(book: Book, copies: Copies, contents: Contents) -> None:
    """After a life in which all could come in sync, closed cleanly: all copies are the same."""
    for partition, settled in book.settled.items():
        topic = book.topics.get(partition[0])
        if topic is None or topic.gone:
            continue
        if settled.waits is not None:
            _check_wait(book, partition)
            continue
        if not settled.whole:
            book.blame("unread", f"{settled.name} was not read to its end, though it is led")
        brokers = copies.get(partition, {})
        held_by_some = any(copy.end > copy.start for copy in brokers.values())
        if held_by_some and sorted(brokers) != sorted(settled.replicas):
            book.blame("replicas", f"{settled.name}: {settled.replicas} hold {sorted(brokers)}")
        _check_same(book, settled.name, list(brokers.values()))
        for broker, copy in brokers.items():
            held = contents.of(partition, broker)
            _check_copy(book, partition, copy, held)


def _check_wait(book: Book, partition: Partition) -> None:
    """A partition may wait only for copies that the story has changed."""
    settled = book.settled[partition]
    last = (book.in_sync_before or {}).get(settled.name, [])
    good = set(last) - book.tampered_before.get(partition, set())
    # One that never had a record is on no disk: that it lost nothing, nobody can know.
    if partition not in book.ever_tampered and not book.replaced_brokers & set(settled.replicas):
        book.blame("stuck", f"{settled.name}: no copy was changed, and it waits: {settled.waits}")
    elif good:
        book.blame(
            "stuck",
            f"{settled.name}: {sorted(good)} were in sync, closed cleanly and not touched, and it "
            f"waits: {settled.waits}",
        )


def _check_same(book: Book, name: str, copies: list[RawCopy]) -> None:
    if not copies:
        return
    start = max(copy.start for copy in copies)
    bodies = {
        copy.broker: [
            (batch.base, batch.last, batch.epoch, batch.crc)
            for batch in copy.batches
            if batch.base >= start
        ]
        for copy in copies
    }
    first = bodies[copies[0].broker]
    for broker, body in bodies.items():
        if body != first:
            pairs = zip(first, body, strict=False)
            apart = next((pair for pair in pairs if pair[0] != pair[1]), "one is longer")
            book.blame("apart", f"{name}: brokers {copies[0].broker} and {broker} differ: {apart}")
            return


def _check_copy(book: Book, partition: Partition, copy: RawCopy, held: dict[int, Record]) -> None:
    topic = book.topics[partition[0]]
    low = book.lows.get(partition, 0)
    if copy.start < low:
        book.blame("deleted", f"{copy.path} starts at {copy.start}, {low} was answered")
    for offset, record in held.items():
        if not book.is_legal(record[0], partition[0]):
            sent = book.sends.get(record[0])
            book.blame("foreign", f"{copy.path}: offset {offset} holds {record} of {sent}")
            break
    twice = [record for record, count in Counter(held.values()).items() if count > 1]
    if twice:
        book.blame("twice", f"{copy.path}: {twice[:3]} are there more than once")
    latest: dict[int, tuple[int, int]] = {}
    for offset in sorted(held):
        record = held[offset]
        sent = book.sends.get(record[0])
        if sent is None or sent.acks != "all" or topic.unclean:
            continue
        life = record[0] // SENDS_PER_LIFE
        if record < latest.get(life, (-1, -1)):
            book.blame("order", f"{copy.path}: {record} at {offset} is behind {latest[life]}")
            break
        latest[life] = record
    wrong = [
        offset
        for offset, record in book.owed.get(partition, {}).items()
        if held.get(offset) != record and not (topic.unclean and _is_told(book, partition, offset))
    ]
    if wrong:
        book.blame(
            "lost",
            f"{copy.path} [{copy.start}, {copy.end}) has other records than were answered at "
            f"{len(wrong)} offsets from {min(wrong)} to {max(wrong)}",
        )


def _is_told(book: Book, partition: Partition, offset: int) -> bool:
    """Whether an unclean election has said that it lost what was there."""
    return partition in book.untold or any(
        start <= offset < end for start, end in book.lost.get(partition, [])
    )
