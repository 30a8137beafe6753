"""The commands `xenoovs agent` and `xenoovs controller`, and their options."""

from __future__ import annotations

from pathlib import Path
from string import hexdigits
from typing import Any

import click

from xenoovs.terminal.defaults import option
from xenoovs.terminal.options import config_value, configs_argument, control_option, switch_options, time_option

_FILE = click.Path(dir_okay=False, path_type=Path)


def _datapath_id(text: str) -> int:
    """Return the number of a datapath id, which may be as ovs-vsctl prints it. Raises click.BadParameter."""
    digits = text.strip('"').removeprefix("0x")
    # In the error a text that is no number has no zeros that nobody typed.
    is_number = digits and not digits.strip(hexdigits)
    return int(config_value("datapath_id")(digits.rjust(16, "0") if is_number else digits))


@click.command("agent")
@configs_argument
@switch_options
@click.option(
    "--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of the log."
)
@time_option("--resync", "10s", help="Interval of full comparisons of all flows, which revert external changes.")
@click.option(
    "--allow-exec", is_flag=True, help="Run the programs of exec probes and of `notify`; a config with either needs it."
)
@click.option("--once", is_flag=True, help="Probe every backend once, reconcile the bridge once, and exit.")
@time_option(
    "--confirm",
    help="Roll back a changed config unless `xenoovs confirm` is run within TIME. A restart of the agent confirms it.",
)
@control_option
@click.option(
    "--api",
    metavar="ADDRESS:PORT",
    help="Serve the API on TCP too. Read-only without --token-file; beyond loopback it needs a token and TLS.",
)
@click.option(
    "--web",
    metavar="ADDRESS:PORT",
    help="Serve the status page and the metrics on TCP, such as 127.0.0.1:8080; same rules as --api.",
)
@click.option(
    "--xenoflow-api",
    metavar="ADDRESS:PORT",
    help="Serve XenoFlow's `/api` too, such as 127.0.0.1:8081 for its dashboard. A POST needs --token-file; beyond "
    "loopback so do reads, and TLS.",
)
@click.option(
    "--tls-cert",
    type=_FILE,
    metavar="FILE",
    help="Certificate chain of what is served, PEM; with --fleet also of this DPU.",
)
@click.option(
    "--tls-key", type=_FILE, metavar="FILE", help="Private key of what is served, PEM; with --fleet also of this DPU."
)
@click.option("--token-file", type=_FILE, metavar="FILE", help="Allow changes over TCP with this token.")
@time_option(
    "--offload-interval",
    "10s",
    help="Interval of datapath dumps for the page and the metrics; dumps take at most half a percent of the time.",
)
@click.option(
    "--fleet",
    metavar="REMOTES",
    help="Install the services and blocks of the fleet's store at REMOTES, such as ssl:192.0.2.1:6662 or "
    "unix:/run/xenoovs/fleet.sock, separated by commas; FILE then has no services. `ssl:` needs --tls-key, "
    "--tls-cert and --tls-ca.",
)
@click.option(
    "--fleet-state",
    metavar="REMOTES",
    help="With --fleet: report what is installed to the database of states at REMOTES.",
)
@click.option(
    "--dpu",
    metavar="NAME",
    help="With --fleet: the name of this DPU, with TLS the CN of its certificate; default: the name of the host.",
)
@click.option("--metrics-blocks", is_flag=True, help="Export metrics of every block too: thousands of series.")
@click.option(
    "--tls-ca",
    type=_FILE,
    metavar="FILE",
    help="Certificate authority of the switches of a controller, or of the store of --fleet (PEM).",
)
def agent_command(**given: Any) -> None:
    """Run health checks and reconcile the bridge of the config FILE, or those of several FILEs.

    Probes the backends (`health` in the config). When one is down, its blocks move to the others; when it answers
    again, it gets exactly those back. Installs the flows again within a second after Open vSwitch was restarted, and
    reverts external changes.

    Reads the config again when the file changes, or on SIGHUP. A config that a bridge cannot take is reported, and the
    last good one stays in use. With several FILEs each keeps its bridge until a restart. SIGTERM ends the
    agent; the flows stay. Events are logged to stderr.

    With --fleet the agent decides nothing: it installs exactly the blocks of the fleet's store. While it cannot reach
    the store, it keeps its flows, also after a reboot, and `xenoovs status` reports that.

    `xenoovs status`, `drain`, `weight`, `pause`, `logs` and others talk to it over a unix socket.
    """
    _run(given, is_controller=False)


def _run(given: dict[str, Any], *, is_controller: bool) -> None:
    from xenoovs.cli.run_agents import run
    from xenoovs.cli.via import Options

    place: dict[str, Any] = {name: option(name) for name in ("control", "db", "lab")}
    options = Options(**given, **place, is_controller=is_controller)
    options.check()
    run(options)


@click.command("controller")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT|punix:PATH",
    help="Where bridges connect. Beyond this host TLS is needed.  [default: punix: socket "
    "xenoovs.controller in the run directory of Open vSwitch]",
)
@click.option(
    "--datapath-id",
    metavar="ID",
    type=_datapath_id,
    help="Admit only the bridge with this datapath id (16 hexadecimal digits). The same as "
    "switch.datapath_id in the config.",
)
@click.option(
    "--attach",
    is_flag=True,
    help="Configure the bridge on this host to connect here, and to keep its flows when the controller "
    "ends (fail_mode=secure). Open vSwitch drops all flows once when a bridge gets its first controller.",
)
@click.option("--redundant", is_flag=True, help="Share the bridge with others; one is master, the rest stand by.")
def controller_command(**given: Any) -> None:
    """Run as OpenFlow controller and reconcile the bridge of the config FILE, or those of several FILEs.

    Works as `xenoovs agent` does, but the bridge connects to it by OpenFlow 1.4; all other bridges are refused.
    Backends behind a port without link are ejected at once. SIGTERM ends it; the flows stay if the bridge has
    fail_mode=secure (--attach sets it).
    """
    _run(given, is_controller=True)


controller_command.params = [*agent_command.params, *controller_command.params]
