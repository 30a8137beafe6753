"""`xenoovs new --from`: a config of another load balancer, or flows written by hand, as a config of xenoovs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from importlib import import_module
from pathlib import Path

from xenoovs.errors import FileUnusable, ParseError, XenoovsError, counted, worded
from xenoovs.migrate.draft import Draft, DraftSwitch, render
from xenoovs.terminal.output import echo

_LARGEST = 16 << 20
"""Most bytes of a source; configs that people write are smaller."""


class Source(Enum):
    """Where a config comes from; the value is what users write."""

    XENOFLOW = "xenoflow"
    KEEPALIVED = "keepalived"
    HAPROXY = "haproxy"
    OVN = "ovn"
    FLOWS = "flows"

    def reader(self) -> Callable[[str], Draft]:
        """Return the function that reads this source."""
        name = "read_lb_list" if self is Source.OVN else f"read_{self.value}"
        read: Callable[[str], Draft] = getattr(import_module(f"xenoovs.migrate.{self.value}"), name)
        return read


SOURCES = tuple(source.value for source in Source)


def convert(source: str, file: Path, switch: DraftSwitch) -> None:
    """Print the config of another load balancer as one of xenoovs. Raises FileUnusable, XenoovsError."""
    name = "standard input" if str(file) == "-" else file.name
    try:
        draft = Source(source).reader()(_text(file))
    except ParseError as error:
        raise FileUnusable(file=name, reason=str(error)) from None
    echo(render(draft, source=name, switch=switch), nl=False)
    services, omitted = len(draft.services), len(draft.every_omission)
    if draft.tunnels and not services:
        echo(f"{counted(len(draft.tunnels), 'tunnel')} imported", err=True)
        return
    if not services and draft.own_flows:
        raise FileUnusable(file=name, reason=_of_xenoovs(draft.own_flows))
    if not services:
        raise FileUnusable(file=name, reason=f"no service was found, so nothing was imported; is it from {source}?")
    note = f"{counted(services, 'service')} imported"
    echo(f"{note}, {counted(omitted, 'comment')} on what is not converted" if omitted else note, err=True)


def _of_xenoovs(flows: int) -> str:
    return (
        f"{counted(flows, 'flow')} {worded(flows, 'is', 'are')} of xenoovs itself and no other one makes a service, so "
        "nothing was imported; `xenoovs history` lists what was applied to a bridge, `xenoovs history NUMBER` prints "
        "the config of it, and `xenoovs status` names the config of a running agent"
    )


def _text(file: Path) -> str:
    stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    with stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise XenoovsError(f"{file} has more than {_LARGEST >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise XenoovsError(f"{file} is not UTF-8 text (byte {error.start})") from None
