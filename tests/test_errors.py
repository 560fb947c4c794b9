"""The errors have the parents that people catch, and lose no fact on the way to another process."""

import errno
import os
import pickle

import pytest

from replog.errors import NoSpaceError, RequestTimedOutError


def test_a_late_answer_is_a_timeout_error():
    with pytest.raises(TimeoutError, match=r"^late$"):
        raise RequestTimedOutError("late")


def test_a_full_disk_is_an_os_error_with_a_number_and_one_sentence():
    with pytest.raises(OSError, match=r"^expected room$") as caught:
        raise NoSpaceError("expected room")
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("kind", [NoSpaceError, RequestTimedOutError])
def test_an_error_is_pickled_with_its_facts(kind):
    error = pickle.loads(pickle.dumps(kind("expected room", path=os.devnull, errno=errno.EDQUOT)))
    assert type(error) is kind
    assert (str(error), error.path, error.errno) == ("expected room", os.devnull, errno.EDQUOT)
