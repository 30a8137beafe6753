"""Runs commands on this host or in one of its network namespaces: some read facts, some change the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from xenoovs.dataclass import dataclass
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.display import span
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, ParseError
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.process import run, run_vsctl

_TIMEOUT_S = 15.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Netns:
    """A network namespace. `netns`: its file (namespaces(7)); None for that of this process."""

    netns: Path | None = None

    def argv(self, *argv: str) -> list[str]:
        """Return the command that runs there, with nsenter(1) if needed."""
        return [*(["nsenter", f"--net={self.netns}"] if self.netns else []), *argv]

    def ask(self, *argv: str, stdin: str = "") -> Fact[str]:
        try:
            return run(self.argv(*argv), stdin=stdin, timeout_s=_TIMEOUT_S).stdout
        except CommandMissing as missing:
            return Unknown(f"{missing.program} is not installed")
        except CommandTimeout:
            return Unknown(f"`{' '.join(argv)}` did not end within {span(_TIMEOUT_S)}")
        except CommandFailed as failed:
            lines = failed.stderr.strip().splitlines() or [f"status {failed.exit_code}"]
            return Unknown(f"`{' '.join(argv)}`: {lines[-1]}")

    def read(self, argv: tuple[str, ...], parse: Callable[[str], Fact[T]]) -> Fact[T]:
        """Return the output of the command, parsed by `parse`; Unknown if it refuses the text."""
        text = self.ask(*argv)
        return text if isinstance(text, Unknown) else understood(text, parse)


HERE = Netns()
"""The network namespace of this process."""


def understood(text: str, parse: Callable[[str], Fact[T]]) -> Fact[T]:
    """Return `text` parsed by `parse`, or Unknown for a ParseError."""
    try:
        return parse(text)
    except ParseError as error:
        return Unknown(f"not understood: {error}")


# JSON as tools print it: any other shape than the one that is read is a ParseError.


Row = dict[str, Any]
P = ParamSpec("P")


def json_of(command: str) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[str, P], T]]:
    """Make a function of JSON take the output of a command. No output is an empty list, as of `ip -j`.

    It raises ParseError for text that is no JSON, or if a part is missing or of another type.
    """

    def decorate(read: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[str, P], T]:
        @wraps(read)
        def parse(text: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(json.loads(text) if text.strip() else [], *args, **kwargs)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
                offset = error.pos if isinstance(error, json.JSONDecodeError) else 0
                raise ParseError(text=text, offset=offset, expected=f"JSON as `{command}` prints it") from None

        return parse

    return decorate


# Run a command that changes the host: against the right Open vSwitch, in the right namespace.


_CHANGE_TIMEOUT_S = 30


def run_changes(commands: Iterable[Sequence[str]], *, endpoint: Endpoint, place: Netns) -> None:
    """Run commands in order, up to the first that fails.

    Tools of Open vSwitch work on `endpoint`; others run in the network namespace `place`. Raises CommandFailed,
    CommandMissing, CommandTimeout; SwitchUnreachable if the run directory is not known.
    """
    for command in commands:
        program, *arguments = command
        match program:
            case "ovs-vsctl":
                done = run_vsctl(endpoint.db, *arguments)
                if done.stderr.strip():
                    # It ends with 0 where ovs-vswitchd could not carry out what the database took (ovs-vsctl(8)).
                    raise CommandFailed(argv=done.argv, exit_code=0, stdout=done.stdout, stderr=done.stderr)
            case "ovs-appctl":
                run([program, *arguments], env=endpoint.env, timeout_s=_CHANGE_TIMEOUT_S)
            case _:
                run(place.argv(*command), timeout_s=_CHANGE_TIMEOUT_S)
