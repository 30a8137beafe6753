"""A bundle: the ordered flow-mods that a switch takes all or none (OpenFlow 1.4.0, 7.3.9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from xenoovs.openflow.flow import Flow


class Command(Enum):
    """Flow-mod commands as ovs-ofctl(8) writes them in a flow file. Only strict ones: they name exactly one flow."""

    ADD = "add"
    MODIFY = "modify_strict"
    DELETE = "delete_strict"


@dataclass(frozen=True, slots=True)
class FlowMod:
    command: Command
    flow: Flow


@dataclass(frozen=True, slots=True)
class Bundle:
    """Flow-mods in the order in which they are sent: adds and changes before deletes, so that no packet is lost."""

    mods: tuple[FlowMod, ...]

    def __len__(self) -> int:
        return len(self.mods)
