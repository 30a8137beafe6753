"""How a bridge that has not come is let come: the command for whoever keeps its Open vSwitch (ovs-vsctl(8))."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Invitation:
    """target: where bridges connect, such as `tcp:127.0.0.1:6653`; None: a launcher listens, and does not tell where.

    db: of the Open vSwitch of the bridge, where ovs-vsctl has to be told. is_redundant: other controllers stay.
    """

    target: str | None = None
    db: str | None = None
    is_redundant: bool = False

    def command(self, bridge: str) -> str:
        """`set-controller` puts one controller in the place of all others, so that it is not for a bridge with some."""
        program = "ovs-vsctl" if self.db is None else f"ovs-vsctl --db={self.db}"
        target = self.target or "tcp:ADDRESS:PORT"
        if not self.is_redundant:
            return f"{program} set-controller {bridge} {target}"
        row = f"""create controller 'target="{target}"' connection_mode=out-of-band max_backoff=1000"""
        return f"{program} -- --id=@c {row} -- add bridge {bridge} controller @c"

    def words(self, bridge: str) -> str:
        """The command in a sentence."""
        where = " with the address and port at which the launcher listens" if self.target is None else ""
        return f"`{self.command(bridge)}`{where}"
