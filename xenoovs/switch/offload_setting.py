"""Turns hardware offload of a whole Open vSwitch on or off: sets it, restarts as planned, and proves the effect.

While it runs, ovs-vswitchd reads other_config:hw-offload only in part (ovs-vswitchd.conf.db(5)): a change without a
restart is half done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from xenoovs.dataclass import asdict, dataclass
from xenoovs.datapath.fact import Unknown
from xenoovs.errors import BridgeMissing, OffloadUnchanged, OpenFlowVersionDisabled, SwitchError
from xenoovs.regex import regex
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import Ofctl
from xenoovs.switch.ovsdb import read_database
from xenoovs.switch.planned_restart import PlannedRestart
from xenoovs.switch.process import run_vsctl
from xenoovs.switch.undo_journal import OFFLOAD, UndoJournal
from xenoovs.switch.vswitchd import find_process, read_daemon

_KEY = "hw-offload"
_METER = regex(r"\bmeter=")
_PATIENCE_S, _STEP_S = 120.0, 0.2


@dataclass(frozen=True, slots=True)
class OffloadSwitch:
    """The offload setting of the Open vSwitch at `endpoint`. Every method may raise SwitchError."""

    endpoint: Endpoint

    def is_as(self, *, wanted: bool) -> bool:
        """Return whether the database has the setting, and the running ovs-vswitchd obeys it."""
        return (read_database(self.endpoint).config.get(_KEY) == "true") == wanted and self._in_effect() is wanted

    def require_safe(self, *, wanted: bool) -> None:
        """Raise SwitchError, with what to do, if the change could lose more than some packets."""
        database = read_database(self.endpoint)
        if database.config.get("flow-restore-wait") == "true":
            raise SwitchError(
                "other_config:flow-restore-wait is set: another restart is under way, or was interrupted. Wait for it; "
                "`xenoovs doctor` shows how to end an interrupted one"
            )
        if database.doca_initialized and not wanted:
            raise SwitchError(
                "this is OVS-DOCA, which was never tried without offload; compare with an Open vSwitch without DOCA"
            )
        for bridge in database.bridges:
            try:
                meters = Ofctl(self.endpoint).run("dump-meters", bridge.name, version="OpenFlow13,OpenFlow14")
            except (BridgeMissing, OpenFlowVersionDisabled):
                # Older versions have no meters.
                continue
            if _METER.search(meters):
                raise SwitchError(
                    f"bridge {bridge.name} has meters, which a restart would lose: set other_config:{_KEY} and restart "
                    "Open vSwitch yourself, when their owner can install them again"
                )

    def change(self, *, wanted: bool, restart: Callable[[Callable[[], None]], PlannedRestart]) -> PlannedRestart:
        """Set it, restart, and wait until it is in effect. `restart`: makes a planned restart; calls its argument
        immediately before Open vSwitch restarts. Raises SwitchError if the restart failed: the setting is then what
        ovs-vswitchd does. Raises OffloadUnchanged if it is not in effect after the restart."""
        with self._journal.held():
            self._settle()
            process = find_process(self.endpoint)
            facts = asdict(process) if process else {}
            self._journal.write({**facts, "wanted": wanted, "before": read_database(self.endpoint).config.get(_KEY)})
            try:
                done = restart(lambda: self._set("true" if wanted else "false"))
            finally:
                self._settle()
        deadline = time.monotonic() + _PATIENCE_S
        while self._in_effect() is not wanted:
            if time.monotonic() > deadline:
                raise OffloadUnchanged(is_on=wanted, evidence=self._evidence())
            time.sleep(_STEP_S)
        return done

    def finish(self) -> bool:
        """Finish a change whose process was killed. Return whether there was one."""
        return self._journal.finish(self._settle)

    def _settle(self) -> bool:
        """Revert the setting unless it is in effect: ovs-vswitchd turns offload on live, and off only at its start."""
        facts = self._journal.read()
        if facts is None:
            return False
        process = find_process(self.endpoint)
        is_same = process is not None and asdict(process).items() <= facts.items()
        if is_same and self._in_effect() is not facts.get("wanted"):
            before = facts.get("before")
            if before is not None and not isinstance(before, str):
                raise self._journal.malformed()
            self._set(before)
        self._journal.erase()
        return True

    def _set(self, value: str | None) -> None:
        words = ["remove", "Open_vSwitch", ".", "other_config", _KEY]
        if value is not None:
            words = ["set", "Open_vSwitch", ".", f"other_config:{_KEY}={value}"]
        # Without waiting: ovs-vswitchd does what it says when it starts again.
        run_vsctl(self.endpoint.db, "--no-wait", *words)

    def _in_effect(self) -> bool | None:
        """Return whether the running ovs-vswitchd offloads; None if it does not show it."""
        daemon = read_daemon(self.endpoint)
        return None if isinstance(daemon, Unknown) or isinstance(daemon.offload, Unknown) else daemon.offload.is_on

    def _evidence(self) -> str:
        daemon = read_daemon(self.endpoint)
        if isinstance(daemon, Unknown):
            return daemon.reason
        return daemon.offload.reason if isinstance(daemon.offload, Unknown) else daemon.offload.evidence

    @property
    def _journal(self) -> UndoJournal:
        return UndoJournal(self.endpoint.local_rundir, OFFLOAD)
