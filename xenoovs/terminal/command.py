"""The parts of every command: its group, its exit status, its error messages, and the user who runs it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from xenoovs.errors import XenoovsError, did_you_mean
from xenoovs.terminal.output import echo, errors_in_json, print_error

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_DIFFERS = 2
EXIT_NOTHING_SEEN = 3
EXIT_USAGE = 64
"""sysexits(3), EX_USAGE."""
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


class GuessingGroup(click.Group):
    """A group that suggests the nearest command for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            raise click.UsageError(f"No such command {args[0]!r}.{did_you_mean(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(GuessingGroup):
    """Imports the module of a command when it is used, and none for help. `sections`: title -> command -> its one line
    of help. `modules`: command -> the module that has it as `NAME_command`."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, str]], modules: Mapping[str, str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._sections, self._modules = sections, modules
        self._texts = {name: text for section in sections.values() for name, text in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._texts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._texts:
            return None
        command: click.Command = getattr(
            import_module(self._modules[cmd_name]), f"{cmd_name.replace('-', '_')}_command"
        )
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer commands without importing them."""
        found = [CompletionItem(name, help=text) for name, text in self._texts.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._texts))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", text) for name, text in commands.items()])


def fail(error: XenoovsError, status: int = EXIT_FAILED, *, text: str | None = None, **facts: object) -> int:
    """Print an error, and return the exit status. `text`: its form without `-o json`."""
    if text is not None and not errors_in_json():
        echo(text, err=True)
    else:
        facts = {"exit_status": status, "retryable": error.retryable, **facts}
        print_error(str(error), code=error.code, hint=error.hint, **facts)
    return status


def user_name() -> str:
    """Return the name of the user who runs the command, or who called sudo."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    caller = os.environ.get("SUDO_USER", name)
    return name if caller == name else f"{caller} (as {name})"


def file_behind(path: Path, *, option: str) -> Path:
    """Return the file to write atomically, behind links. A link stays, and so does a device or a pipe behind it, such
    as /dev/stdout. `option`: its name in messages. Raises click.UsageError if the path is something else."""
    # Before `resolve`: /dev/stdout leads to the name of a pipe, which no path has.
    if path.exists() and not path.is_file():
        raise click.UsageError(f"{option} {path} is no regular file.")
    return path.resolve()
