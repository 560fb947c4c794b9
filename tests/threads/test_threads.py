"""The oracle of `make threads` sees what is planted; a short run of each kind holds."""

from __future__ import annotations

import pytest

from replog._native.append_result import AppendResult
from tests.shake.records import Tag
from tests.threads import runs
from tests.threads.log_model import Model
from tests.threads.workers import Act, BrokenError

SEED = 1


def tags(*sends: int) -> list[Tag]:
    return [Tag(SEED, send, 0) for send in sends]


def appended(began: int, ended: int, offset: int, send: int, count: int = 1) -> Act:
    answer = AppendResult(offset, offset + count - 1)
    return Act("append", began, ended, (answer, send, count))


def cut(began: int, ended: int, offset: int) -> Act:
    return Act("cut", began, ended, (True, offset))


def check(acts: list[Act], after: list[Tag], *, start: int = 0, end: int | None = None) -> None:
    held = dict(enumerate(after, start))
    model = Model({}, 0, 0, acts, may_hold_refused=False)
    model.check(held, start, start + len(after) if end is None else end)


def test_what_was_answered_must_be_there():
    check([appended(0, 1, 0, 7), appended(2, 3, 1, 8)], tags(7, 8))
    with pytest.raises(BrokenError, match="offset 1 was answered to 8:0, it holds None"):
        check([appended(0, 1, 0, 7), appended(2, 3, 1, 8)], tags(7))


def test_an_answer_counts_only_its_own_records():
    with pytest.raises(BrokenError, match="1 records of 7 are 0 to 2"):
        check([Act("append", 0, 1, (AppendResult(0, 2), 7, 1))], tags(7, 8, 9))


def test_a_cut_takes_what_came_before_it_and_nothing_else():
    before, behind = appended(0, 1, 0, 7), appended(6, 7, 0, 8)
    check([before, cut(2, 3, 0), behind], tags(8))
    with pytest.raises(BrokenError, match="was cut, and is there"):
        check([before, cut(2, 3, 0)], tags(7))
    with pytest.raises(BrokenError, match="was answered"):
        check([before, cut(2, 3, 0), behind], [])


def test_a_cut_that_overlaps_may_take_a_record_or_not():
    acts = [appended(0, 4, 0, 7), cut(2, 5, 0)]
    check(acts, tags(7))
    check(acts, [])


def test_what_was_refused_is_not_there():
    refused = Act("failed append", 0, 1, (ValueError(), 9, 1))
    check([refused], [])
    with pytest.raises(BrokenError, match="were refused, and are there"):
        check([refused], tags(9))


def test_offsets_are_dense_and_records_are_there_once():
    with pytest.raises(BrokenError, match="hold nothing"):
        check([appended(0, 1, 0, 7)], tags(7), end=2)
    with pytest.raises(BrokenError, match="twice"):
        check([appended(0, 1, 0, 7)], tags(7, 7))


def test_an_answered_log_start_does_not_go_back():
    front = Act("front", 2, 3, (True, 1))
    check([front], tags(8), start=1)
    with pytest.raises(BrokenError, match="the log starts at 0, 1 was answered"):
        check([front], tags(7, 8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(runs.KINDS))
def test_a_short_run_holds(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "PLACES", tmp_path)
    played = runs.play(kind, SEED, 1.0)
    assert played.problem is None, played.problem
    assert played.rounds
