"""The fuzz targets on their seeds and on mutants that come out the same each time."""

from __future__ import annotations

from tests.fuzz import fuzz_batch, fuzz_directory, fuzzing


def test_mutants_of_batches_are_decoded_alike_or_refused_by_type() -> None:
    fuzzing.run_seeded(fuzz_batch.one_input, fuzz_batch.seeds(), runs=3000)


def test_mutants_of_a_directory_give_the_records_that_were_there_or_are_refused_by_type() -> None:
    fuzzing.run_seeded(fuzz_directory.one_input, fuzz_directory.seeds(), runs=150)
