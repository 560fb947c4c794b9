"""What the fuzz targets share: atheris where it is installed, a seeded mutator everywhere else.

A target is one function from bytes to nothing. It may raise nothing: a typed error of replog that
the bytes deserve is caught inside, anything else is a bug. As a script it takes the arguments of
libFuzzer (`-runs=20000 -seed=1` is a run that comes out the same each time); a corpus folder that
is empty gets the target's seeds first, and a file is replayed.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Target = Callable[[bytes], None]

INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def mutate(content: bytes, chance: random.Random) -> bytes:
    """A few byte flips, overwrites, cuts, repeats and insertions."""
    mutant = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        at = chance.randrange(len(mutant) + 1)
        length = chance.choice((1, 1, 2, 4, 8, 61))
        match chance.randrange(6):
            case 0 if at < len(mutant):
                mutant[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(mutant):
                mutant[at] = chance.choice(INTERESTING)
            case 2:
                del mutant[at : at + length]
            case 3:
                mutant[at:at] = mutant[at : at + length]
            case 4:
                mutant[at:at] = chance.randbytes(length)
            case _:
                mutant[at : at + length] = chance.randbytes(min(length, len(mutant) - at))
    return bytes(mutant)


def run_seeded(target: Target, seeds: Iterable[bytes], runs: int, seed: int = 2026) -> None:
    """Each seed as it is, then `runs` mutants of them; the same ones each time."""
    chance = random.Random(seed)
    corpus = list(seeds)
    for content in corpus:
        target(content)
    for _ in range(runs):
        content = mutate(chance.choice(corpus), chance)
        try:
            target(content)
        except BaseException:
            print(f"the input that failed: {content.hex()}", file=sys.stderr)
            raise


def main(target: Target, seeds: Iterable[bytes]) -> None:
    """Let libFuzzer drive: it finds hangs and crashes and keeps the inputs.

    It sees no branches of native modules that gcc built, so half of what it tries are mutants of
    the seeds, and the others mutants of what it holds for interesting.
    """
    import atheris

    started = list(seeds)

    def mutator(content: bytes, size_max: int, seed: int) -> bytes:
        chance = random.Random(seed)
        base = content if content and chance.random() < 0.5 else chance.choice(started)
        return mutate(base, chance)[:size_max]

    corpora = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    if corpora and corpora[0].is_dir() and not any(corpora[0].iterdir()):
        for number, content in enumerate(started):
            (corpora[0] / f"seed-{number:03}").write_bytes(content)
    arguments = [*sys.argv[:1], "-max_len=16384", *sys.argv[1:]]
    atheris.Setup(arguments, atheris.instrument_func(target), custom_mutator=mutator)
    atheris.Fuzz()
