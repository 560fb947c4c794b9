"""The fuzz targets on their seeds and on mutants that come out the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fuzz_batch, fuzz_directory, fuzz_message, fuzzing

REGRESSIONS = Path(__file__).parent / "regressions"


def test_mutants_of_batches_are_decoded_alike_or_refused_by_type() -> None:
    fuzzing.run_seeded(fuzz_batch.one_input, fuzz_batch.seeds(), runs=3000)


def test_mutants_of_a_directory_give_the_records_that_were_there_or_are_refused_by_type() -> None:
    fuzzing.run_seeded(fuzz_directory.one_input, fuzz_directory.seeds(), runs=150)


def test_mutants_of_messages_are_read_as_one_message_or_refused_by_type() -> None:
    fuzzing.run_seeded(fuzz_message.one_input, fuzz_message.seeds(), runs=20000)


@pytest.mark.parametrize("name", sorted(path.name for path in REGRESSIONS.iterdir()))
def test_what_a_fuzzer_found_once_stays_mended(name: str) -> None:
    """The file's name begins with its target's."""
    target = fuzz_batch if name.startswith("batch") else fuzz_directory
    target.one_input((REGRESSIONS / name).read_bytes())
