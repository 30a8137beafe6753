"""Options of `why` that judge what was recorded earlier, as in a support bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

_FILE = click.Path(allow_dash=True, path_type=Path)
_LIVE = ("db", "lab", "reinstall", "probe_driver")


@dataclass(frozen=True, slots=True)
class Recorded:
    """Files, `-` for standard input: a dump of megaflows; optionally flows, and the log of ovs-vswitchd."""

    dump: Path
    flows: Path | None
    log: Path | None

    @classmethod
    def of(cls, config: Path, options: Mapping[str, Any]) -> Recorded | None:
        """None: a switch is asked. Raises click.UsageError for options that exclude each other."""
        dump, flows, log = (options[name] for name in ("from_dump", "from_flows", "from_log"))
        if dump is None:
            if flows or log:
                raise click.UsageError("--from-flows and --from-log go with --from-dump.")
            return None
        given = next((name for name in _LIVE if options[name]), None)
        if given is not None:
            raise click.UsageError(f"--from-dump asks no switch, so --{given.replace('_', '-')} has no use.")
        if [config, dump, flows, log].count(Path("-")) > 1:
            raise click.UsageError("standard input can be only one of FILE, DUMP, FLOWS and LOG.")
        return cls(dump, flows, log)


def recorded_options(command: Command) -> Command:
    """--from-dump, --from-flows, --from-log."""
    dump = click.option(
        "--from-dump",
        type=_FILE,
        metavar="DUMP",
        help="Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input. No switch is "
        "asked.",
    )
    flows = click.option(
        "--from-flows",
        type=_FILE,
        metavar="FLOWS",
        help="With --from-dump: the output of `ovs-ofctl --names dump-flows`, which tells the blocks as they were, "
        "and flows of others that widen them.",
    )
    log = click.option(
        "--from-log",
        type=_FILE,
        metavar="LOG",
        help="With --from-dump: the log of the ovs-vswitchd that it is of (ovs-vswitchd.log).",
    )
    return dump(flows(log(command)))
