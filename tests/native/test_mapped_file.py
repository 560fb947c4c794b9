"""MappedFile: what it writes, maps, pins, closes and refuses, on the real file system."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replog import errors
from replog._native import mapped_file, recorded_calls
from replog._native.mapped_file import FileLock, MappedFile, OfflineFile


def run_in_child(action: Callable[[], None]) -> int:
    """Exit status of a forked child: 0 if `action` returned, 7 if it raised."""
    child = os.fork()
    if child == 0:
        status = 7
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def made(path: Path, content: bytes = b"") -> MappedFile:
    file = MappedFile(str(path), writable=True, create=True)
    file.append_bytes(content)
    return file


def test_what_is_appended_can_be_viewed_and_is_in_the_file(tmp_path: Path) -> None:
    file = made(tmp_path / "a")
    for number in range(100):
        file.append_bytes(bytes([number]) * 1000)
    assert file.size_bytes == 100_000
    assert bytes(file.view(5_500, 1_000)) == b"\x05" * 500 + b"\x06" * 500
    assert (tmp_path / "a").read_bytes() == b"".join(bytes([n]) * 1000 for n in range(100))


def test_views_live_on_after_growth_truncation_unlink_and_close(tmp_path: Path) -> None:
    file = made(tmp_path / "a", b"first" * 1000)
    early = memoryview(file.view(0, 5000))
    file.append_bytes(b"x" * 100_000)
    late = memoryview(file.view(5000, 100_000))
    mapped_file.remove(str(tmp_path / "a"))
    file.close()
    assert bytes(early) == b"first" * 1000
    assert bytes(late) == b"x" * 100_000
    assert early.readonly


def test_pins_are_counted_until_the_last_buffer_goes(tmp_path: Path) -> None:
    file = made(tmp_path / "a", b"x" * 100)
    view = file.view(10, 40)
    buffer = memoryview(view)
    del view
    assert file.pinned_past(49)
    assert not file.pinned_past(50)
    buffer.release()
    del buffer
    assert not file.pinned_past(0)


def test_truncate_cuts_and_a_later_append_goes_on_from_there(tmp_path: Path) -> None:
    file = made(tmp_path / "a", b"abcdefgh")
    file.truncate(3)
    file.append_bytes(b"XY")
    file.flush()
    assert bytes(file.view(0, 5)) == b"abcXY"
    assert (tmp_path / "a").read_bytes() == b"abcXY"


def test_truncating_under_a_pin_or_viewing_past_the_end_is_a_bug(tmp_path: Path) -> None:
    file = made(tmp_path / "a", b"abcdefgh")
    with pytest.raises(errors.InvariantViolation):
        file.view(4, 5)
    view = file.view(0, 8)
    with pytest.raises(errors.InvariantViolation):
        file.truncate(7)
    assert len(view) == 8


def test_a_full_file_rolls_back_and_takes_appends_again_when_there_is_room(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a full disk: a short write first, then EFBIG."""
    file = made(tmp_path / "a", b"x" * 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
        with pytest.raises(errors.NoSpaceError) as caught:
            file.append_bytes(b"y" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.path == str(tmp_path / "a")
    assert caught.value.position == 1000
    assert (tmp_path / "a").stat().st_size == 1000
    assert not file.failed
    file.append_bytes(b"z" * 10)
    assert bytes(file.view(998, 12)) == b"xx" + b"z" * 10


def test_a_child_of_fork_gets_an_error_from_each_use_and_the_parent_goes_on(tmp_path: Path) -> None:
    file = made(tmp_path / "a", b"abc")

    def use_each() -> None:
        for use in (
            lambda: file.append_bytes(b"x"),
            file.flush,
            lambda: file.view(0, 1),
            lambda: file.truncate(0),
        ):
            with pytest.raises(errors.LogClosedError):
                use()

    assert run_in_child(use_each) == 0
    file.append_bytes(b"d")
    assert (tmp_path / "a").read_bytes() == b"abcd"


def test_a_closed_file_refuses_and_closes_twice(tmp_path: Path) -> None:
    file = made(tmp_path / "a", b"abc")
    file.close()
    file.close()
    with pytest.raises(errors.LogClosedError):
        file.append_bytes(b"d")
    with pytest.raises(errors.LogClosedError):
        file.view(0, 1)


def test_more_files_than_descriptors_take_turns(tmp_path: Path) -> None:
    before = mapped_file.limit_descriptors(8)
    try:
        files = [made(tmp_path / str(number)) for number in range(50)]
        for _ in range(3):
            for number, file in enumerate(files):
                file.append_bytes(str(number).encode())
        assert mapped_file.open_descriptor_count() <= 8
        for number, file in enumerate(files):
            text = str(number).encode() * 3
            assert bytes(file.view(0, len(text))) == text
        for file in files:
            file.close()
    finally:
        mapped_file.limit_descriptors(before)


def test_a_file_cut_by_another_process_while_its_descriptor_was_lent_is_noticed(
    tmp_path: Path,
) -> None:
    before = mapped_file.limit_descriptors(1)
    try:
        first = made(tmp_path / "a", b"abcdef")
        second = made(tmp_path / "b")
        os.truncate(tmp_path / "a", 2)
        with pytest.raises(errors.LogTruncatedError):
            first.append_bytes(b"x")
        second.close()
    finally:
        mapped_file.limit_descriptors(before)


def test_descriptors_are_not_inherited_over_exec(tmp_path: Path) -> None:
    made(tmp_path / "a", b"abc")
    ours = [
        fd
        for fd in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{fd}") == str(tmp_path / "a")
    ]
    assert all(not os.get_inheritable(int(fd)) for fd in ours)


def test_rename_to_moves_the_file_and_reopening_follows(tmp_path: Path) -> None:
    before = mapped_file.limit_descriptors(1)
    try:
        file = made(tmp_path / "a", b"abc")
        file.rename_to(str(tmp_path / "a.deleted"))
        made(tmp_path / "b", b"takes the descriptor")
        file.append_bytes(b"d")
        assert (tmp_path / "a.deleted").read_bytes() == b"abcd"
    finally:
        mapped_file.limit_descriptors(before)


def test_opening_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MappedFile(str(tmp_path / "none"))
    with pytest.raises(errors.UsageError):
        MappedFile(str(tmp_path / "none"), create=True)
    with pytest.raises(errors.UsageError):
        MappedFile(__file__).append_bytes(b"x")


def test_replace_file_leaves_the_new_content_and_no_other_file(tmp_path: Path) -> None:
    for content in (b"old", b"", b"new" * 10_000):
        mapped_file.replace_file(str(tmp_path / "checkpoint"), content)
        assert mapped_file.read_file(str(tmp_path / "checkpoint")) == content
    assert os.listdir(tmp_path) == ["checkpoint"]
    with pytest.raises(FileNotFoundError):
        mapped_file.replace_file(str(tmp_path / "none" / "checkpoint"), b"x")


def test_names_are_made_moved_and_removed(tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    mapped_file.make_dir(folder)
    with pytest.raises(FileExistsError):
        mapped_file.make_dir(folder)
    made(tmp_path / "folder" / "a", b"abc").close()
    with pytest.raises(errors.StorageError):
        mapped_file.remove_dir(folder)
    mapped_file.rename(folder + "/a", folder + "/b")
    mapped_file.fsync_dir(folder)
    mapped_file.remove(folder + "/b")
    with pytest.raises(FileNotFoundError):
        mapped_file.remove(folder + "/b")
    mapped_file.remove_dir(folder)
    assert os.listdir(tmp_path) == []


def test_a_lock_is_held_once_until_released(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FileLock(path)
    with pytest.raises(errors.LogDirectoryLockedError):
        FileLock(path)
    lock.release()
    lock.release()
    FileLock(path).release()


def test_a_child_of_fork_does_not_keep_the_parents_lock(tmp_path: Path) -> None:
    """The child stays alive while the parent releases, and the lock must be free at once."""
    path = str(tmp_path / ".lock")
    lock = FileLock(path)
    asks, answers = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(answers)
        os.read(asks, 1)
        os._exit(0)
    lock.release()
    FileLock(path).release()
    os.close(answers)
    os.waitpid(child, 0)
    os.close(asks)


def test_an_offline_file_reads_what_is_there_and_notices_a_cut(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdefgh")
    file = OfflineFile(str(tmp_path / "a"))
    assert file.size() == 8
    assert file.read(2, 3) == b"cde"
    os.truncate(tmp_path / "a", 4)
    with pytest.raises(errors.LogTruncatedError) as caught:
        file.read(2, 3)
    assert caught.value.position == 4
    file.close()
    with pytest.raises(errors.LogClosedError):
        file.size()


@pytest.fixture
def few_mappings() -> Iterator[None]:
    before = mapped_file.limit_mappings(8)
    yield
    recorded_calls.uninstall()
    mapped_file.limit_mappings(before)


@pytest.mark.usefixtures("few_mappings")
def test_more_files_than_mappings_take_turns(tmp_path: Path) -> None:
    files = [made(tmp_path / str(number), str(number).encode()) for number in range(50)]
    for _ in range(3):
        for number, file in enumerate(files):
            text = str(number).encode()
            assert bytes(file.view(0, len(text))) == text
            assert mapped_file.mapping_count() <= 8
    for file in files:
        file.close()
    assert mapped_file.mapping_count() == 0


@pytest.mark.usefixtures("few_mappings")
def test_what_is_viewed_stays_mapped_while_its_file_gives_its_mapping_up(tmp_path: Path) -> None:
    first = made(tmp_path / "first", b"kept")
    view = first.view(0, 4)
    others = [made(tmp_path / str(number), b"x") for number in range(20)]
    for other in others * 2:
        assert bytes(other.view(0, 1)) == b"x"
    assert mapped_file.mapping_count() <= 8
    assert bytes(view) == b"kept"
    assert first.pinned_past(0)
    assert bytes(first.view(1, 2)) == b"ep"


@pytest.mark.usefixtures("few_mappings")
def test_a_process_without_mappings_gives_its_own_back_before_it_says_so(tmp_path: Path) -> None:
    files = [made(tmp_path / str(number), b"x") for number in range(8)]
    for file in files:
        file.view(0, 1)
    late = made(tmp_path / "late", b"late")
    recorded_calls.install()
    recorded_calls.fail("mmap", errno.ENOMEM, times=2)
    assert bytes(late.view(0, 4)) == b"late"
    assert mapped_file.mapping_count() == 2  # 7, then 3, then 1 and this one
    later = made(tmp_path / "later", b"later")
    recorded_calls.fail("mmap", errno.ENOMEM)
    with pytest.raises(errors.OutOfMappingsError, match="max_map_count") as caught:
        later.view(0, 5)
    assert caught.value.retriable
    assert caught.value.path == str(tmp_path / "later")
    recorded_calls.clear_faults()
    assert bytes(later.view(0, 5)) == b"later"
