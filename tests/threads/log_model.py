"""What a log may hold after threads have appended to it, cut it and read it, by intervals.

Each call is known by when it began and ended. A record must be there if no cut of its offset ended
after its append had begun; it must be gone if one began after the append had ended.
"""

from __future__ import annotations

import dataclasses

from tests.shake.records import Tag
from tests.threads.workers import Act, expect

Contents = dict[int, Tag]


@dataclasses.dataclass
class Model:
    """One round: what stood before it, and what was done in it."""

    before: Contents
    start_before: int
    end_before: int
    acts: list[Act]
    may_hold_refused: bool
    """The log was closed meanwhile: an append may have been refused after it was in."""

    def acts_of(self, *kinds: str) -> list[Act]:
        return [act for act in self.acts if act.kind in kinds]

    def check(self, after: Contents, start: int, end: int) -> None:
        """Against the records of [start, end)."""
        cuts = [(act, act.facts[1]) for act in self.acts_of("cut", "failed cut")]
        restarts = self.acts_of("restart", "failed restart")
        self._check_appends(after, start, cuts, restarts)
        self._check_order(after, start, end, any_cut=bool(cuts or restarts))
        if not restarts:
            fronts = [act.facts[1] for act in self.acts_of("front")]
            # A cut below the log start takes the log start along, as Kafka's does.
            floor = min([max([self.start_before, *fronts]), *(offset for _, offset in cuts)])
            expect(start >= floor, f"the log starts at {start}, {floor} was answered")

    def _check_appends(
        self,
        after: Contents,
        start: int,
        cuts: list[tuple[Act, int]],
        restarts: list[Act],
    ) -> None:
        whole = [(act, 0) for act in restarts]
        repeated = [act for act in self.acts_of("repeat") if not act.facts[0].duplicate]
        for act in (*self.acts_of("append"), *repeated):
            answer, send, count = act.facts
            base, last = answer.base_offset, answer.last_offset
            expect(last - base + 1 == count, f"{count} records of {send} are {base} to {last}")
            cutting = [each for each in (*cuts, *whole) if each[1] <= last or each[0] in restarts]
            overlapping = [cut for cut, _ in cutting if cut.ended > act.began]
            after_it = [
                cut
                for cut, offset in cutting
                if cut.began > act.ended
                and not cut.kind.startswith("failed")
                and (offset <= base or cut in restarts)
            ]
            for place in range(count):
                offset, tag = base + place, after.get(base + place)
                mine = tag is not None and (tag.send, tag.place) == (send, place)
                if not overlapping and offset >= start:
                    expect(mine, f"offset {offset} was answered to {send}:{place}, it holds {tag}")
                if after_it:
                    expect(not mine, f"offset {offset} of {send}:{place} was cut, and is there")
        if not cuts and not restarts:
            for offset, tag in self.before.items():
                expect(
                    offset < start or after.get(offset) == tag,
                    f"offset {offset} held {tag}, and now {after.get(offset)}",
                )
        refused = {act.facts[1] for act in self.acts_of("failed append")}
        if not self.may_hold_refused:
            found = sorted(tag for tag in after.values() if tag.send in refused)
            expect(not found, f"{found[:3]} were refused, and are there")

    def _check_order(self, after: Contents, start: int, end: int, *, any_cut: bool) -> None:
        tags = list(after.values())
        expect(len(set(tags)) == len(tags), "a record is there twice")
        if not any_cut:
            # An end marker takes an offset, and is no record.
            markers = {act.facts[0].base_offset for act in self.acts_of("marker")}
            first = max(start, self.end_before)
            gaps = [each for each in range(first, end) if each not in after and each not in markers]
            expect(not gaps, f"offsets {gaps[:5]} of [{first}, {end}) hold nothing")
        for act in self.acts_of("read"):
            for offset, tag in act.facts[0]:
                self._check_read(after, act, offset, tag, start, any_cut=any_cut)

    def _check_read(
        self, after: Contents, act: Act, offset: int, tag: Tag | None, start: int, *, any_cut: bool
    ) -> None:
        expect(tag is not None, f"a reader found no record of ours at {offset}")
        if not any_cut and offset >= start:
            expect(
                after.get(offset) == tag,
                f"a reader found {tag} at {offset}, where {after.get(offset)} is",
            )
