"""Open vSwitch as a service of the host, by systemctl(1)."""

from __future__ import annotations

from xenoovs.errors import SwitchError
from xenoovs.switch.endpoint import DEFAULT_RUNDIR, Endpoint
from xenoovs.switch.process import run, try_run

_UNITS = ("openvswitch-switch", "openvswitch")
"""Of Debian and Ubuntu; of RPM systems."""

_RESTART_TIMEOUT_S = 120.0


def check_is_service(endpoint: Endpoint) -> None:
    """Raises SwitchError for an Open vSwitch that systemd does not run: nothing was changed then."""
    if endpoint.rundir is None or endpoint.rundir.resolve() != DEFAULT_RUNDIR.resolve():
        raise SwitchError(
            f"the Open vSwitch at {endpoint.rundir or endpoint.db} is no service of this host and was not restarted; "
            "restart it yourself, then run `xenoovs apply`"
        )
    _unit()


def restart_service() -> None:
    """Returns when systemd has started it again. Raises SwitchError."""
    run(["systemctl", "restart", _unit()], timeout_s=_RESTART_TIMEOUT_S)


def _unit() -> str:
    for unit in _UNITS:
        if try_run(["systemctl", "cat", f"{unit}.service"]).exit_code == 0:
            return unit
    raise SwitchError(
        f"systemd knows neither {' nor '.join(_UNITS)}, so Open vSwitch was not restarted; restart it "
        "yourself, then run `xenoovs apply`"
    )
