"""Look-only commands on this host or in a network namespace of it; what cannot be seen is Unknown, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from xenoovs.datapath.host import Seen, Unknown
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, ParseError
from xenoovs.switch.process import run

_TIMEOUT_S = 15.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where devices are. `netns`: file of a network namespace (namespaces(7)); None: that of this process."""

    netns: Path | None = None

    def argv(self, *argv: str) -> list[str]:
        """The command as it is run here, by nsenter(1) where it has to be."""
        return [*(["nsenter", f"--net={self.netns}"] if self.netns else []), *argv]

    def ask(self, *argv: str) -> Seen[str]:
        """What the command prints."""
        try:
            return run(self.argv(*argv), timeout_s=_TIMEOUT_S).stdout
        except CommandMissing as missing:
            return Unknown(f"{missing.program} is not installed")
        except CommandTimeout:
            return Unknown(f"`{' '.join(argv)}` did not end within {_TIMEOUT_S:g} s")
        except CommandFailed as failed:
            said = failed.stderr.strip().splitlines() or [f"status {failed.exit_code}"]
            return Unknown(f"`{' '.join(argv)}`: {said[-1]}")

    def read(self, argv: tuple[str, ...], parse: Callable[[str], Seen[T]]) -> Seen[T]:
        """What the command prints, as `parse` reads it; text that it refuses is Unknown."""
        text = self.ask(*argv)
        return text if isinstance(text, Unknown) else understood(text, parse)


def understood(text: str, parse: Callable[[str], Seen[T]]) -> Seen[T]:
    """`text` as `parse` reads it; a ParseError becomes Unknown."""
    try:
        return parse(text)
    except ParseError as error:
        return Unknown(f"not understood: {error}")
