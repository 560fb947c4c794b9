"""The command's own input and output as bytes; a shell may have closed either (`<&-`, `>&-`)."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import click

from replog.errors import UsageError


def standard_input() -> BinaryIO:
    """Where lines come from. Raises UsageError if it is closed."""
    if sys.stdin is None:
        raise UsageError("expected lines on standard input, found it closed; give it a file")
    return sys.stdin.buffer


def standard_output() -> BinaryIO:
    """Where results go. Raises UsageError if it is closed."""
    if sys.stdout is None:
        raise UsageError("expected a place for results, found standard output closed; redirect it")
    return sys.stdout.buffer


def separator_bytes(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> bytes | None:
    """A --key-separator as the shell gave it, byte for byte; an empty one is wrong usage."""
    if text == "":
        raise click.BadParameter("expected at least one character, found none", context, parameter)
    return None if text is None else os.fsencode(text)
