"""xenoovs beside applications of ryu 4.34, at its own web server: for `scripts/try-ryu`, in an environment with ryu."""

from __future__ import annotations

import os
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

from tests.command_line import SMALL_CONFIG
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.ovs.test_ryu_app import ask, connect, datapath_of, has_flows
from tests.ovs.ways import free_port
from tests.patience import PATIENCE_S, eventually

_LAUNCHER = (
    "import eventlet.wsgi; eventlet.wsgi.ALREADY_HANDLED = object(); from ryu.cmd.manager import main; "
    "import sys; main(sys.argv[1:])"
)
_TOKEN = "0123456789abcdef"


def test_beside_simple_switch_and_ofctl_rest(dummy_ovs: DummyOvs, tmp_path: Path) -> None:
    config, token, port, web = tmp_path / "my.yaml", tmp_path / "token", free_port(), free_port()
    config.write_text(SMALL_CONFIG.replace("weight: 30}", "weight: 30, egress: p2}"))
    token.write_text(_TOKEN)
    token.chmod(0o600)
    env = {"XENOOVS_CONFIG": str(config), "XENOOVS_TOKEN_FILE": str(token), "OVS_RUNDIR": str(dummy_ovs.ovs.directory)}
    where = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port)]
    where += ["--wsapi-host", "127.0.0.1", "--wsapi-port", str(web)]
    apps = ["xenoovs.ryu_app", "ryu.app.simple_switch_13", "ryu.app.ofctl_rest"]
    rest = f"127.0.0.1:{web}"
    with (
        dummy_ovs.bridge(ports=("p0", "p1", "p2")) as ours,
        dummy_ovs.bridge("br-other", ports=("o0", "o1")) as theirs,
        subprocess.Popen([sys.executable, "-c", _LAUNCHER, *where, *apps], env={**os.environ, **env}) as process,
    ):
        try:
            connect((ours, theirs), f"tcp:127.0.0.1:{port}")
            eventually(lambda: has_flows(ours), "our flows")
            number = datapath_of(theirs)
            eventually(lambda: ask(rest, "GET", "/stats/switches") == (200, [number]), "the bridge of the others alone")
            theirs.send("o0", [udp_packet("192.0.2.7")])
            eventually(lambda: len(theirs.sent("o1")) == 1, "simple_switch_13 floods a packet")
            for state, is_served in (("down", False), ("up", True)):
                ours.ovs.appctl("netdev-dummy/set-admin-state", "p2", state)
                eventually(lambda wanted=is_served: _serves(ours) is wanted, f"p2 is {state}")  # type: ignore[misc]
            # The control API, with its token.
            assert ask(rest, "GET", "/v1/status")[0] == 401
            status, found = ask(rest, "GET", "/v1/status", _TOKEN)
            assert (status, found["snapshot"]["bridge"]) == (200, "ovsbr1")
            status, found = ask(rest, "POST", "/v1/drain", _TOKEN, {"service": "dns", "backend": "fips2"})
            assert (status, found["backends"]) == (200, [{"service": "dns", "backend": "fips2"}])
            assert ask(rest, "GET", "/v1/blocks?service=dns&after=1", _TOKEN)[1]["total"] > 0
            assert ask(rest, "GET", "/v1/nothing", _TOKEN)[0] == 404
            assert ask(rest, "POST", "/v1/drain", _TOKEN, {"service": "d" * 70_000, "backend": "x"})[0] in (413, 503)
            assert ask(rest, "GET", "/ready", _TOKEN)[1]["ready"]
            connection = HTTPConnection(rest, timeout=PATIENCE_S)
            connection.request("GET", "/v1/events/stream?since=0", headers={"Authorization": f"Bearer {_TOKEN}"})
            answer = connection.getresponse()
            assert b'"starting"' in answer.readline()
            connection.close()
        finally:
            process.kill()


def _serves(bridge: DummyBridge) -> bool:
    """Whether clients come to the backend behind p2."""
    return any("table=1," in flow and "02:00:5e:10:00:03" in flow for flow in bridge.dump_flows())
