from __future__ import annotations

import pytest

from replog.cli import line_source
from replog.cli.line_source import LineSource, standard_library_sources
from replog.errors import UsageError


def lines_of(source: LineSource, count: int, column_records: int = 3) -> list[bytes]:
    columns = list(source.columns(count, column_records))
    assert all(0 < len(column) <= column_records for column in columns)
    return [line for column in columns for line in column.to_pylist()]


@pytest.fixture
def file(tmp_path):
    def write(content: bytes, name: str = "lines") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write


def test_each_line_is_a_value_without_its_newline(file):
    source = LineSource([file(b"one\n\nthree \xff\r\nlast")], 100)
    assert lines_of(source, 4) == [b"one", b"", b"three \xff\r", b"last"]
    assert source.passes == 1


def test_a_short_input_is_repeated_and_a_long_one_is_cut(file):
    path = file(b"a\nb\n")
    assert lines_of(LineSource([path], 100), 5) == [b"a", b"b", b"a", b"b", b"a"]
    assert lines_of(LineSource([path], 100), 1) == [b"a"]


def test_files_follow_each_other_and_never_share_a_line(file):
    source = LineSource([file(b"a\nb", "first"), file(b"", "empty"), file(b"c\n", "last")], 100)
    assert lines_of(source, 3) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("chunk_bytes", range(1, 12))
def test_lines_are_the_same_however_the_file_is_read(file, monkeypatch, chunk_bytes):
    monkeypatch.setattr(line_source, "CHUNK_BYTES", chunk_bytes)
    source = LineSource([file(b"\nab\n\n\ncdefg\nh")], 100)
    assert lines_of(source, 6) == [b"", b"ab", b"", b"", b"cdefg", b"h"]


def test_an_input_without_a_line_is_refused(file):
    with pytest.raises(UsageError, match="at least one line"):
        lines_of(LineSource([file(b"")], 100), 1)


def test_a_line_that_no_batch_holds_is_refused_even_before_its_end(file, monkeypatch):
    monkeypatch.setattr(line_source, "CHUNK_BYTES", 4)
    for content in (b"x" * 11 + b"\n", b"x" * 100):
        with pytest.raises(UsageError, match="at most 10 bytes"):
            lines_of(LineSource([file(content)], 10), 1)


def test_every_machine_has_the_sources_of_its_standard_library():
    sources = standard_library_sources()
    assert sources == sorted(set(sources), key=sources.index)
    assert any(path.endswith("dataclasses.py") for path in sources)
    assert not any("site-packages" in path for path in sources)
