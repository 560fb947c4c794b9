"""What a story does to the directories of a cluster that stands still.

One broker at a time: a wiped directory, or one partition's; one restored from an older copy; two
partitions that have changed places; or, to be refused, two brokers that have. No partition gets a
second changed copy while the first does not hold again all that is owed (C4: a minority). What no
other copy holds is given up.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.shake.book import Book, Partition
from tests.shake.checker import Contents, Copies
from tests.shake.raw_files import is_partition


class Tampering:
    """Over one story; older copies of brokers' directories are kept beside the cluster's."""

    def __init__(self, story: Path, chance: random.Random, controllers: frozenset[int]) -> None:
        self._cluster, self._old = story / "cluster", story / "old"
        self._chance = chance
        self._controllers = controllers
        """Brokers whose directory is a controller's as well: only partitions of theirs go."""
        self.swapped: tuple[Path, Path] | None = None
        """Two brokers' directories that are to be refused, and to be put back."""

    def keep_copy(self) -> None:
        """Keep a broker as it is, to be put back in a later life."""
        brokers = sorted(self._cluster.glob("broker-*"))
        if brokers and self._chance.random() < 0.6:
            broker = self._chance.choice(brokers)
            shutil.rmtree(self._old / broker.name, ignore_errors=True)
            shutil.copytree(broker, self._old / broker.name)

    def act(self, book: Book, copies: Copies, contents: Contents) -> str | None:
        """Change one broker; says what was done, None for nothing."""
        brokers = sorted(self._cluster.glob("broker-*"))
        if not brokers:
            return None
        victim = self._chance.choice(brokers)
        number = int(victim.name.removeprefix("broker-"))
        held = {key: copy[number].path for key, copy in copies.items() if number in copy}
        free = [key for key in held if not book.tampered.get(key, set()) - {number}]
        verbs: list[Callable[[], list[Partition] | None]] = [
            lambda: self._wipe_partition(held, free),
            lambda: self._age_partition(held, free),
            lambda: self._swap_partitions(held, free),
        ]
        if len(free) == len(held) and number not in self._controllers:
            verbs += [
                lambda: self._wipe_broker(victim, free),
                lambda: self._age_broker(victim, free),
                lambda: self._swap_brokers(brokers),
            ]
        verb = self._chance.choice(verbs)
        names = {key: path.name for key, path in held.items()}
        touched = verb()
        if touched is None:
            return None
        for key in touched:
            book.tamper(key, number)
            self._give_up(book, copies, contents, key)
        code = verb.__code__.co_names
        if not victim.exists() or code[-1] == "_age_broker":
            book.replaced_brokers.add(number)
        return f"{code[-1]} of broker {number}: {sorted(names[key] for key in touched)}"

    def put_back(self) -> None:
        if self.swapped is not None:
            _exchange(*self.swapped)
            self.swapped = None

    def _give_up(
        self, book: Book, copies: Copies, contents: Contents, partition: Partition
    ) -> None:
        owed = book.owed.get(partition, {})
        good = copies[partition].keys() - book.tampered[partition]
        for offset, record in list(owed.items()):
            if not any(contents.of(partition, broker).get(offset) == record for broker in good):
                del owed[offset]

    def _pick(self, free: list[Partition]) -> Partition | None:
        return self._chance.choice(sorted(free)) if free else None

    def _wipe_partition(
        self, held: dict[Partition, Path], free: list[Partition]
    ) -> list[Partition] | None:
        picked = self._pick(free)
        if picked is None:
            return None
        shutil.rmtree(held[picked])
        return [picked]

    def _age_partition(
        self, held: dict[Partition, Path], free: list[Partition]
    ) -> list[Partition] | None:
        picked = self._pick(free)
        old = None if picked is None else self._old / held[picked].parent.name / held[picked].name
        if picked is None or old is None or not _is_copy_of(old, held[picked]):
            return None
        shutil.rmtree(held[picked])
        shutil.copytree(old, held[picked])
        return [picked]

    def _swap_partitions(
        self, held: dict[Partition, Path], free: list[Partition]
    ) -> list[Partition] | None:
        """Of two topics: two of one are told apart by nothing in Kafka's files but their name."""
        one = self._pick(free)
        other = self._pick([key for key in free if one is not None and key[0] != one[0]])
        if one is None or other is None:
            return None
        _exchange(held[one], held[other])
        return [one, other]

    def _wipe_broker(self, victim: Path, free: list[Partition]) -> list[Partition]:
        shutil.rmtree(victim)
        return free

    def _age_broker(self, victim: Path, free: list[Partition]) -> list[Partition] | None:
        old = self._old / victim.name
        if not old.exists():
            return None
        shutil.rmtree(victim)
        shutil.copytree(old, victim)
        return free

    def _swap_brokers(self, brokers: list[Path]) -> list[Partition] | None:
        if len(brokers) < 2 or self._controllers:
            return None
        self.swapped = tuple(self._chance.sample(brokers, 2))  # type: ignore[assignment]
        assert self.swapped is not None
        _exchange(*self.swapped)
        return []


def _exchange(one: Path, other: Path) -> None:
    aside = one.parent.parent / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def _is_copy_of(old: Path, now: Path) -> bool:
    """Whether it is an earlier state of the same topic's partition."""
    files = [path / "partition.metadata" for path in (old, now)]
    return (
        is_partition(old)
        and all(file.exists() for file in files)
        and files[0].read_bytes() == files[1].read_bytes()
    )
