"""Makes a failing script small: fewer steps, fewer faults, plainer options, the same finding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tests.faults.script import Script

Fails = Callable[[Script], bool]
PLAIN = {
    "descriptors": 2048,
    "cleanup_policy": "delete",
    "file_delete_delay_ms": 0,
    "retention_ms": -1,
    "retention_bytes": -1,
    "flush_messages": 1 << 62,
    "flush_mode": "os",
    "segment_index_bytes": 4096,
    "index_interval_bytes": 150,
    "segment_bytes": 1100,
}


def shrink(script: Script, fails: Fails) -> Script:
    """`fails` says whether a script still shows what is looked for; the smallest one that does."""
    while True:
        smaller = next((one for one in simpler(script) if fails(one)), None)
        if smaller is None:
            return script
        script = smaller


def simpler(script: Script) -> Iterator[Script]:
    """Scripts that are a little simpler, the much simpler first."""
    steps = script.steps
    size = len(steps)
    chunk = size // 2
    while chunk:
        for begin in range(size - chunk, -1, -chunk):
            yield dataclasses.replace(script, steps=steps[:begin] + steps[begin + chunk :])
        chunk //= 2
    for at, step in enumerate(steps):
        for number in range(len(step.faults)):
            fewer = step.faults[:number] + step.faults[number + 1 :]
            changed = (*steps[:at], step._replace(faults=fewer), *steps[at + 1 :])
            yield dataclasses.replace(script, steps=changed)
    for at, step in enumerate(steps):
        for number, fault in enumerate(step.faults):
            if fault.steps > 1:
                brief = (*step.faults[:number], fault._replace(steps=1), *step.faults[number + 1 :])
                changed = (*steps[:at], step._replace(faults=brief), *steps[at + 1 :])
                yield dataclasses.replace(script, steps=changed)
    for name, value in PLAIN.items():
        if script.options[name] != value:
            yield dataclasses.replace(script, options={**script.options, name: value})
    for at, step in enumerate(steps):
        for place, number in enumerate(step.numbers):
            for less in (0, 1, number % 10):
                if less < number:
                    numbers = (*step.numbers[:place], less, *step.numbers[place + 1 :])
                    changed = (*steps[:at], step._replace(numbers=numbers), *steps[at + 1 :])
                    yield dataclasses.replace(script, steps=changed)
