"""The `replog` command: a group whose sub-commands are imported only when they run.

Expected failures are one sentence on stderr, with --json too, and exit code 1; wrong usage is
click's message and exit code 2; a reader of our output that goes away (`| head`) ends us quietly.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from replog.errors import ReplogError

try:
    import click
except ImportError:
    sys.stderr.write(
        "replog: expected the package click for the command line, found none; "
        "install it with: pip install 'replog[cli]'\n"
    )
    raise SystemExit(1) from None

# Sub-command to "module:attribute" and its line in the help, which is told without importing it.
COMMANDS = {
    "append": ("replog.cli.append:append", "Append lines of stdin to a partition directory."),
    "dump": ("replog.cli.dump:dump", "Show what is in a directory or file of a log."),
    "quickstart": ("replog.cli.quickstart:quickstart", "See a failover on this machine."),
    "read": ("replog.cli.read:read", "Print the records of a partition directory."),
    "spark": ("replog.cli.spark:spark", "Let Spark count and aggregate segment files."),
}

EXIT_BROKEN_PIPE = 141  # what a shell reports for a process ended by SIGPIPE
EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports each at first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="replog", prog_name="replog")
def replog() -> None:
    """Kafka's replicated commit log: write, read and inspect it from files."""


def _say(sentence: str) -> None:
    if sys.stderr is not None:  # as a shell's 2>&- leaves it
        # One line whatever a path or a value holds.
        sys.stderr.write("replog: " + sentence.replace("\n", "\\n") + "\n")


def _discard_output() -> None:
    """Let the interpreter's last flush go nowhere instead of failing on a closed pipe."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code."""
    try:
        code = replog.main(
            args=list(arguments) if arguments is not None else None,
            prog_name="replog",
            standalone_mode=False,
        )
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):  # click turns the former into the latter
        _discard_output()
        return EXIT_BROKEN_PIPE
    except ReplogError as error:
        _say(str(error))
        return 1
    except OSError as error:
        _say(f"{error.strerror or error} ({error.filename})" if error.filename else str(error))
        return 1
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        _say(
            f"expected input that the command can take, found {type(error).__name__}: {error}; "
            f"check the arguments and files, and report it if they are right"
        )
        return 1
    return code if isinstance(code, int) else 0


def main() -> None:
    """Entry of the console script."""
    sys.exit(run())
