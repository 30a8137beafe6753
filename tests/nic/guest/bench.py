"""The means of a scenario: one emulated NIC, one OVS of its own, and the record of what it does."""

from __future__ import annotations

import json
import os
import signal
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partialmethod
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.nic.guest import nic
from tests.nic.guest import ovs as switch
from tests.nic.guest.frames import Kind
from tests.nic.guest.record import Burst, Judgement, Look, Record, Said, Traces
from tests.nic.guest.stream import Stream
from tests.nic.guest.wire import Wire, arrived
from tests.nic.truth import parse_rules
from xenoovs.cli.main import run as run_xenoovs
from xenoovs.datapath.parse import parse_dump
from xenoovs.evidence.archive import Recorder, write_record
from xenoovs.lab.private_ovs import PrivateOvs
from xenoovs.switch.endpoint import Endpoint, find_endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.planned_restart import planned_restart
from xenoovs.switch.process import run, try_run
from xenoovs.switch.tape import passing_through

# One address a value of the low six bits, in no regular order of the high ones: every block of the balancers is hit.
CLIENTS = tuple(f"198.18.{(37 * i) % 251}.{64 + i}" for i in range(64))

_PATIENCE_S = 900.0
_INTERVAL_S = 2.0
"""The default of `verify-offload --interval`."""
_TELLING_MODULES = ("netdev_offload_tc", "tc", "dpif_netlink", "netdev_offload")


class Bench:
    """Start with `begin`; everything sent and observed goes to `record`."""

    def __init__(
        self, directory: Path, wires: MutableMapping[str, Wire], programs: Mapping[str, str], module: str
    ) -> None:
        """`wires`: the far ends of the NIC's ports, replaced when the module is loaded again."""
        self.record = Record()
        self.wires = dict(wires)
        self._wires, self._module = wires, module
        self._directory = directory
        self._programs = programs
        self._ovs: PrivateOvs | None = None
        self.ports: tuple[str, ...] = ()
        """Devices whose rules of traffic control are read."""
        self._veths: list[str] = []
        self._forgotten, self._changed = 0, False

    @property
    def ovs(self) -> PrivateOvs:
        """The OVS of this scenario. Raises RuntimeError before `begin`."""
        if self._ovs is None:
            raise RuntimeError("the scenario must call begin() first")
        return self._ovs

    def begin(
        self,
        program: str = "",
        *,
        extra_flows: str = "",
        hw_offload: str = "true",
        settings: Sequence[str] = (),
        ports: Sequence[str] = nic.PORTS,
        tunnels: Sequence[str] = (),
    ) -> None:
        """A fresh OVS and bridge with `ports`, the compiled flows of `balancers/PROGRAM.yaml` and `extra_flows`.

        Args:
            program: Empty: none.
            tunnels: Types of tunnel ports (switch.TUNNELS); they leave by p1, which must not be in `ports` then.
        """
        self._ovs = switch.start_ovs(self._directory, hw_offload=hw_offload, settings=settings)
        if tunnels:
            nic.set_up_uplink()
        self.ports = (*ports, *(switch.TUNNELS[kind].device for kind in tunnels))
        switch.add_bridge(self.ovs, ports, tunnels=tunnels)
        compiled = self._programs[program] if program else ""
        self.record.program = compiled
        self.add_flows(compiled + extra_flows)

    def add_flows(self, text: str) -> None:
        """Install more flows, in one bundle."""
        switch.add_flows(self.ovs, text)

    def send(
        self, sources: Sequence[str] = CLIENTS, *, packets_each: int = 1, kind: Kind | None = None, port: str = "p0"
    ) -> None:
        """Send packets into `port`, and count those that leave by any port."""
        kind = kind or Kind()
        frames = [kind.frame(source) for source in sources]
        self.wires[port].send(frames * packets_each)
        came = arrived(self.wires)
        self.record.bursts.append(Burst(port, tuple(sources), packets_each, kind, came))

    prime = partialmethod(send, packets_each=1)
    """Send one packet of each source. When nothing more comes and the guest is idle, OVS has their megaflows."""

    def send_frames(self, frames: Sequence[bytes], *, port: str = "p0") -> None:
        """Send frames that are no part of the record, and return when what comes of them has left the NIC."""
        self.wires[port].send(frames)
        arrived(self.wires)

    def replace_extra_flows(self, flows: str) -> None:
        """Replace the flows that have no cookie, and let Open vSwitch forget all megaflows."""
        target = switch.management(self.ovs)
        run(["ovs-ofctl", "-O", "OpenFlow14", "del-flows", target, "table=0,cookie=0/-1"], env=self.ovs.env)
        self.add_flows(flows)
        self.purge()

    def filters(self) -> dict[str, list[dict[str, Any]]]:
        """The rules of traffic control, by port that is there."""
        # One process for all. A port without a qdisc has an empty list, one that is gone ends the batch.
        present = [port for port in self.ports if Path("/sys/class/net", port).exists()]
        shown = "".join(f"filter show dev {port} ingress\n" for port in present)
        lines = run(["tc", "-j", "-s", "-batch", "-"], stdin=shown).stdout.splitlines()
        return dict(zip(present, map(json.loads, lines), strict=True))

    @contextmanager
    def between_samples(self, action: Callable[[], None]) -> Iterator[None]:
        """In the block, `verify-offload` does this between its two samples, where it would wait."""
        pause = time.sleep

        def act(seconds: float) -> None:
            if seconds == _INTERVAL_S:
                action()
            else:
                pause(seconds)

        with patch.object(time, "sleep", act):
            yield

    @property
    def megaflows(self) -> int:
        """How many there are now."""
        return len(self.appctl("dpctl/dump-flows").splitlines())

    def wait_until(self, condition: Callable[[], bool], what: str, *, shown: Callable[[], object] = str) -> None:
        """Look once a second.

        Raises RuntimeError with `what`, and with `shown()` of that moment, when it lasts longer than on a busy machine.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {_PATIENCE_S:.0f} s: {what}; {shown()}")
            time.sleep(1.0)

    def appctl(self, command: str, *arguments: str, timeout_s: float = _PATIENCE_S) -> str:
        """What `ovs-appctl COMMAND ARGUMENTS` prints."""
        return switch.appctl(self.ovs, command, *arguments, timeout_s=timeout_s)

    def wait_until_revalidated(self) -> None:
        """Return when all megaflows are as the flows of now want them."""
        # The first round of the revalidators may have begun before; the second has all counters of TC.
        for _ in range(2):
            self.appctl("revalidator/wait")

    def look(self, label: str, *, is_changed: bool = False) -> Look:
        """Record what Open vSwitch, traffic control and the NIC say now.

        `is_changed`: something other than an apply of the scenario has given megaflows new actions.
        """
        self._changed = self._changed or is_changed
        self.wait_until_revalidated()
        look = Look(
            label=label,
            bursts=len(self.record.bursts),
            forgotten=self._forgotten,
            changed=self._changed,
            megaflows=self.appctl("dpctl/dump-flows", "-m"),
            tc=self.filters(),
            rules=nic.rules(),
            port_counters=nic.port_counters(),
        )
        self.record.looks.append(look)
        return look

    def xenoovs(self, command: str, subject: str, *options: str) -> Said:
        """Run a command about a balancer, or `--bridge BRIDGE`, on this OVS. Any exit status is an answer.

        In this process, as starting Python takes many seconds here; an exception would be a bug and goes to the record.
        """
        self._changed = self._changed or command == "apply"
        self.record.said.append(self._taped(*self._words(command, subject, options)))
        return self.record.said[-1]

    def _words(self, command: str, subject: str, options: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
        """Return the words that are recorded, and those of the command. `subject`: a balancer or a bridge."""
        balancer = Path(__file__).parents[1] / "balancers" / f"{subject}.yaml"
        argv = [str(balancer)] if subject in self._programs else ["--bridge", subject]
        return (command, subject, *options), [command, *argv, *options]

    def _taped(self, shown: tuple[str, ...], argv: list[str]) -> Said:
        """Run a command; one that only judges is recorded, so that the host can ask the record."""
        if argv[0] not in ("verify-offload", "why", "doctor") or {"--fix", "--probe-driver", "--flows"}.intersection(
            argv
        ):
            return self._run(shown, argv)
        recorder, file = Recorder(limit_s=_PATIENCE_S), self._directory / "host.record"
        with passing_through(recorder):
            said = self._run(shown, argv)
        write_record(file, recorder, find_endpoint(db=None, env=self.ovs.env))
        return replace(said, archive=b64encode(file.read_bytes()).decode())

    def _run(self, shown: tuple[str, ...], argv: list[str]) -> Said:
        out, err = StringIO(), StringIO()
        with _environment(self.ovs.env), redirect_stdout(out), redirect_stderr(err):
            exit_code = run_xenoovs(argv)
        return Said(shown, len(self.record.bursts), exit_code, out.getvalue(), err.getvalue())

    @contextmanager
    def beside(self, command: str, balancer: str, *options: str) -> Iterator[None]:
        """`xenoovs COMMAND ...` runs in a process of its own, and is interrupted (Ctrl-C) at the end of the block."""
        self._changed = self._changed or command == "apply"
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                self._run((), self._words(command, balancer, options)[1])
            finally:
                os._exit(0)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGINT)
            os.waitpid(pid, 0)

    def note(self, argv: tuple[str, ...], text: str) -> None:
        """Record what came of something else than a command."""
        self.record.said.append(Said(argv, len(self.record.bursts), 0, text, ""))

    def judge(self, subject: str, *commands: str, recorded: bool = False, simulated: bool = False) -> None:
        """Run commands that judge the state of the last look. Nothing is sent meanwhile.

        `subject`: a balancer or a bridge. `commands`: of `verify-offload`, `why` and `doctor`; none: all. `recorded`:
        also `record`. `simulated`: also `trace` and `lint` of the balancer, once for the same flows, as each takes an
        emulated processor seconds.
        """
        before = self._traces()
        archive = self._record() if recorded else ""
        # No packet comes between two samples here, so a second one would only let megaflows expire.
        once = ("--interval", "0s", "--output", "json")
        options = {
            "verify-offload": once,
            "why": ("--probe-driver", "--listen", "200ms", *once),
            "doctor": ("--output", "json"),
        }
        asked = {name: options[name] for name in commands or options}
        if simulated:
            asked["trace"] = ("--src", CLIENTS[0], "--output", "json")
            asked["lint"] = (*self._dumped(), "--output", "json")
        said = {name: self._run(*self._words(name, subject, words)) for name, words in asked.items()}
        # Of megaflows of no service it speaks only when it is asked about a client.
        if "why" in said and self._leaves_something(said["why"]):
            of_a_client = ("--src", CLIENTS[0], *options["why"])
            said["why of a client"] = self._run(*self._words("why", subject, of_a_client))
        self.record.judgements.append(Judgement(self.record.looks[-1].label, said, before, self._traces(), archive))

    def _record(self) -> str:
        """Return what `xenoovs record` writes in base64, or why it does not."""
        file = self._directory / "host.record"
        # Emulated, and beside others, a minute may be too little.
        with patch("xenoovs.cli.record._ASKING_S", _PATIENCE_S):
            said = self._run((), ["record", str(file), "--for", "0s"])
        return b64encode(file.read_bytes()).decode() if said.exit_code == 0 else said.stderr

    def _dumped(self) -> tuple[str, ...]:
        """Return the flows and groups of the bridge as files for `lint`."""
        words = list[str]()
        for what in ("flows", "groups"):
            file = self._directory / what
            dump = ["ovs-ofctl", "-O", "OpenFlow15", "--names", f"dump-{what}", switch.management(self.ovs)]
            file.write_text(run(dump, env=self.ovs.env).stdout)
            words += [f"--{what}", str(file)]
        return tuple(words)

    def _leaves_something(self, why: Said) -> bool:
        """Whether there is a megaflow without an entry of the NIC that `why` does not explain."""
        look = self.record.looks[-1]
        known = {rule.ufid for rule in parse_rules(look.rules)}
        known |= {megaflow["ufid"] for megaflow in json.loads(why.stdout)["megaflows"]}
        return any(flow.in_port in self.wires and flow.ufid not in known for flow in parse_dump(look.megaflows))

    def _traces(self) -> Traces:
        # One process for all ports; -force: a port without a qdisc is an error, and the next one follows.
        shown = "".join(f"filter show dev {port} ingress\n" for port in self.ports)
        filters = try_run(["tc", "-force", "-batch", "-"], stdin=shown).stdout
        return Traces(filters, len(nic.rules().splitlines()), self.appctl("vlog/list"))

    def reload_nic(self) -> None:
        """Remove the module, with whatever it holds, and load it again: new ports with the old names."""
        nic.unload_nic(self._wires)
        self._wires.update(nic.load_nic(self._module))
        self.wires.update(self._wires)

    def add_veth(self, port: str) -> None:
        """A port that is not on the NIC, for `begin` to put on the bridge."""
        self.wires[port] = nic.add_veth(port)
        self._veths.append(port)

    def explain(self) -> None:
        """Let OVS log why it does not offload a megaflow (the modules are those of OVS 3.6 and older)."""
        for module in _TELLING_MODULES:
            self.appctl("vlog/set", f"{module}:file:dbg")
            self.appctl("vlog/disable-rate-limit", module)

    @contextmanager
    def streaming(self, kind: Kind | None = None) -> Iterator[Stream]:
        """A steady stream of all clients for the time of the block."""
        stream = Stream(self.wires, CLIENTS, kind or Kind())
        stream.begin()
        try:
            yield stream
        finally:
            self.record.streams.append(stream.end())

    def restart_as_planned(self, order: Callable[[], None]) -> None:
        """What `xenoovs doctor --restart-ovs` does, but restarted by `order`: nothing here is a service of systemd."""
        self._forgotten, self._changed = self._forgotten + 1, False
        endpoint = Endpoint(self.ovs.db, self.ovs.directory)
        planned_restart(ManagementSwitch(endpoint), endpoint, order, directory=self._directory)

    def purge(self) -> None:
        """Delete all megaflows (`revalidator/purge`), so that OVS offloads them again."""
        self._forgotten, self._changed = self._forgotten + 1, False
        self.appctl("revalidator/purge")

    def close(self) -> None:
        """Complete the record, and clean the NIC for the next scenario."""
        if self._ovs is not None:
            switch.stop_ovs(self._ovs)
            self.record.ovs_log = [line for line in switch.log(self._ovs) if not _is_noise(line)]
        nic.clear_uplink()
        nic.unlimit()
        nic.offload_everywhere()
        for port in self._veths:
            self.wires[port].close()
            nic.remove_veth(port)
        self.record.rules_left = nic.rules()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _is_noise(line: str) -> bool:
    # A guest without KVM is slow, and OVS logs that at length.
    return any(f"|{module}" in line for module in ("coverage", "timeval", "poll_loop", "memory"))
