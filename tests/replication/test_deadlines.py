"""Timers: in order, once, and not after they were called off."""

from hypothesis import given
from hypothesis import strategies as st

from replog.replication.deadlines import Deadlines


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans())), st.lists(st.integers(0, 25)))
def test_timers_run_in_order_and_only_once_and_only_if_not_called_off(timers, times):
    deadlines = Deadlines()
    ran: list[int] = []
    for number, (at_ms, keeps) in enumerate(timers):
        timer = deadlines.schedule(at_ms, lambda _, number=number: ran.append(number))
        if not keeps:
            deadlines.cancel(timer)
            deadlines.cancel(timer)
    for now_ms in sorted(times):
        deadlines.run_due(now_ms)
    last = max(times, default=-1)
    due = [
        (at_ms, number) for number, (at_ms, keeps) in enumerate(timers) if keeps and at_ms <= last
    ]
    assert sorted(ran) == sorted(number for _, number in due)
    left = [at_ms for at_ms, keeps in timers if keeps and at_ms > last]
    assert deadlines.next_ms == min(left, default=None)


def test_what_an_action_schedules_for_now_waits_for_the_next_tick():
    deadlines = Deadlines()
    ran = []

    def again(now_ms):
        ran.append(now_ms)
        deadlines.schedule(now_ms, again)

    deadlines.schedule(5, again)
    deadlines.run_due(5)
    deadlines.run_due(5)
    assert ran == [5, 5]


def test_timers_that_were_called_off_do_not_pile_up():
    deadlines = Deadlines()
    for _ in range(10_000):
        deadlines.cancel(deadlines.schedule(10**6, print))
    assert len(deadlines._heap) < 200
