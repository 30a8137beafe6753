"""Collects the evidence from a running Open vSwitch and its host."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from socket import if_nameindex
from typing import TYPE_CHECKING

from xenoovs.dataclass import replace, uncollected
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import HostFacts
from xenoovs.datapath.ipsec import address_text
from xenoovs.datapath.megaflow import MAX_IDLE_S, Megaflow
from xenoovs.datapath.outer import encapsulations
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import cookie_of_ufid
from xenoovs.datapath.tunnel import is_tunnel_device
from xenoovs.errors import ParseError, SwitchError
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.evidence.evidence import Evidence, ports_of
from xenoovs.evidence.samples import DatapathSample, check_ports, sample_of
from xenoovs.openflow.flow import Flow
from xenoovs.regex import regex
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.tape import asked, is_replaying

if TYPE_CHECKING:
    from xenoovs.datapath.tunnel_facts import TunnelEnd
    from xenoovs.switch.management import ManagementSwitch
    from xenoovs.switch.netns import Netns
    from xenoovs.switch.tc import FilterDump

_TC_PORT = regex(r"in_port\(([^)]+)\).*, dp:tc")
_IN_PORT = regex(r"in_port\(([^)]+)\)")
_IN_TC_HARDWARE = regex(r"in_port\(([^)]+)\).*, offloaded:yes, dp:tc")
_UNTRIED = (
    "the driver was not asked about rules of {device}: for a device without offload of its own, the kernel itself "
    "refuses a rule for hardware alone (tc_setup_cb_add() of net/sched/cls_api.c); dmesg may have the driver's words"
)
_ELSEWHERE = "ovs-vswitchd uses devices of another network namespace: run xenoovs there to read traffic control"


class Collector:
    """Reads one Open vSwitch and its host. If the NIC has rules, it reads the datapath twice.

    Growth between two samples shows whether the NIC forwards by its rules.
    """

    def __init__(
        self,
        switch: ManagementSwitch,
        *,
        interval_s: float = 0.0,
        target: CommandTarget = THIS_HOST,
    ) -> None:
        """Compare with earlier readings. `interval_s`: seconds between the two samples of a first
        reading, 0 for only one sample. `target`: how commands reach the switch."""
        self.switch, self.interval_s, self.target = switch, interval_s, target
        self._last: DatapathSample | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self.switch.endpoint

    def megaflows(self, bridge: str, *, ingress: Set[str] = frozenset(), is_whole: bool = False) -> Evidence:
        """Return the megaflows of a bridge, with their filters of traffic control and their growth.

        `ingress`: ports whose filters are always read if the bridge is of the kernel's datapath. `is_whole`: whether to
        read the megaflows of other bridges too. Raises SwitchError.
        """
        bridges = self.switch.bridges()
        idle_ms = next((each.max_idle_ms for each in bridges if each.max_idle_ms), None)
        evidence = Evidence(
            bridges=bridges,
            ports=None if is_whole else ports_of(bridge, bridges),
            internal_ports=frozenset(port.name for each in bridges for port in each.ports if port.type == "internal"),
            max_idle_s=idle_ms / 1000 if idle_ms else MAX_IDLE_S,
            target=self.target,
        )
        state = evidence.bridge(bridge)
        ingress = ingress if state is not None and state.datapath_type == "system" else frozenset()
        others = {} if is_whole else {port.name for each in bridges if each.name != bridge for port in each.ports}
        evidence, sample = self._sample(evidence, others, ingress)
        before, self._last = self._last, sample
        if sample is not None and before is None and self.interval_s:
            if not is_replaying():
                time.sleep(self.interval_s)
            before = sample
            evidence, self._last = self._sample(evidence, others, ingress)
        if sample is None or before is None or self._last is None:
            return evidence
        return replace(evidence, before=before, port_checks=check_ports(before, self._last))

    def _sample(
        self, evidence: Evidence, others: Iterable[str], ingress: Set[str]
    ) -> tuple[Evidence, DatapathSample | None]:
        """Return the evidence with a dump and its filters, and the sample if the NIC has rules."""
        from xenoovs.switch.devices import read_port_packets
        from xenoovs.switch.netns import HERE
        from xenoovs.switch.vswitchd import netns_of

        place = netns_of(self.endpoint)
        where = HERE if isinstance(place, Unknown) else place
        ports_before = read_port_packets(self._last.ports_after if self._last else (), where)
        # One datapath has the ports of all bridges.
        lines = tuple(
            line
            for line in self.switch.dump_megaflows().splitlines()
            if (found := _IN_PORT.search(line)) is None or found[1] not in others
        )
        dumped, remarks = _read_filters(lines, ingress, place)
        evidence = replace(
            evidence,
            lines=lines,
            filters=None if dumped is None else dumped.by_cookie,
            rules=() if dumped is None else dumped.by_device,
            remarks=remarks,
        )
        ports = dict.fromkeys(found[1] for line in lines if (found := _IN_TC_HARDWARE.search(line)))
        if not ports or dumped is None:
            return evidence, None
        with uncollected():
            readable = (each for each in scan_dump(lines) if not isinstance(each, ParseError))
            megaflows = sample_of(readable, evidence.filters, max_idle_s=evidence.max_idle_s)
        return evidence, DatapathSample(megaflows, ports_before, read_port_packets(ports, where))

    def foreign_flows(self, bridge: str) -> tuple[Flow, ...]:
        """Return the flows of other programs. There may be many: call it only if they can matter."""
        return tuple(seen.flow for seen in self.switch.dump_foreign_flows(bridge))

    def chains(self, evidence: Evidence, *, is_in_kernel: bool) -> Evidence:
        """Return the evidence with the version, and whether the kernel can offload chains.

        This depends on the build of the kernel; if that is unknown, the log may show it.
        """
        from xenoovs.switch.devices import read_tc_chains
        from xenoovs.switch.vswitchd import find_process, read_log, read_version

        evidence = replace(evidence, given_version=read_version(self.endpoint))
        if self.endpoint.rundir is None or not is_in_kernel:
            return evidence
        found = read_tc_chains()
        if not isinstance(found, Unknown):
            return replace(evidence, has_tc_chains=found)
        process = find_process(self.endpoint)
        return evidence if process is None else replace(evidence, logs=(read_log(process),))

    def lines(self, host: HostFacts) -> tuple[str, ...]:
        """Return the lines of a dump of all megaflows; none if ovs-vswitchd does not answer."""
        with suppress(SwitchError):
            return () if isinstance(host.daemon, Unknown) else tuple(self.switch.dump_megaflows().splitlines())
        return ()

    def tunnels(self, host: HostFacts, ends: Sequence[TunnelEnd]) -> HostFacts:
        """Return the facts about a host with those about these tunnels, and about their certificates."""
        from xenoovs.switch.vswitchd import netns_of

        place = netns_of(self.endpoint)
        if not ends or isinstance(place, Unknown) or isinstance(host.database, Unknown):
            return host
        from xenoovs.switch.tunnel_facts import read_tunnel_facts

        facts = read_tunnel_facts(self.endpoint, place, ends)
        if any(end.is_encrypted for end in ends):
            from xenoovs.switch.certificates import read_certificate_files

            options = (port.options for bridge in host.database.bridges for port in bridge.ports)
            certificates = (each["remote_cert"] for each in options if "remote_cert" in each)
            facts = replace(facts, files=read_certificate_files(host.database.config, certificates))
        return replace(host, tunnels=facts)

    def host_of_megaflows(self, evidence: Evidence, held: Iterable[Megaflow]) -> Evidence:
        """Return the evidence with the host and its log, and with the next hops of the tunnels of these megaflows."""
        from xenoovs.switch.host_facts import gather
        from xenoovs.switch.vswitchd import find_process, netns_of, read_log

        host, place, process = gather(self.endpoint), netns_of(self.endpoint), find_process(self.endpoint)
        outers = (outer for megaflow in held for outer in encapsulations(megaflow.actions))
        remotes = tuple(dict.fromkeys(address_text(outer.remote, is_ipv6=outer.is_ipv6) for outer in outers))
        if remotes and not isinstance(place, Unknown):
            from xenoovs.switch.tunnel_facts import MAX_REMOTES, read_next_hops

            host = replace(host, tunnels=read_next_hops(place, remotes[:MAX_REMOTES]))
        unread = (fact.reason for fact in (host.database, host.daemon, host.devices) if isinstance(fact, Unknown))
        logs = () if process is None else (read_log(process),)
        return replace(evidence, host=host, logs=logs, remarks=tuple(unread))

    def listen(self, evidence: Evidence, *, seconds: float, is_reinstalling: bool) -> Evidence:
        """Return the evidence with the log of ovs-vswitchd about offload at debug level for `seconds`."""
        from xenoovs.switch.vlog import OffloadLog

        try:
            logged = OffloadLog(self.endpoint).listen(seconds=seconds, reinstall=is_reinstalling)
        except SwitchError as error:
            return replace(evidence, remarks=(*evidence.remarks, str(error)))
        return replace(evidence, logs=(logged, *evidence.logs))

    def refused_rules(self, evidence: Evidence, refused: Sequence[Megaflow], *, is_probing: bool) -> Evidence:
        """Return the evidence on rules that are not in the NIC, with remarks only on these. `is_probing`: whether to
        try each rule in the driver, by adding it with skip_sw."""
        from xenoovs.switch.netlink import RouteSocket
        from xenoovs.switch.skip_sw_probe import SkipSwProber
        from xenoovs.switch.vswitchd import find_process, same_namespace

        if not refused:
            return replace(evidence, remarks=())
        process = find_process(self.endpoint)
        if process is None or not same_namespace(process):
            return replace(evidence, remarks=(_ELSEWHERE,))
        if not is_probing:
            return replace(evidence, remarks=())
        cookies = defaultdict[str, list[str]](list)
        for megaflow in refused:
            if megaflow.in_port and (cookie := cookie_of_ufid(megaflow.ufid or "")):
                cookies[megaflow.in_port].append(cookie)
        try:
            with RouteSocket() as netlink:
                tried = {device: rules for device, rules in cookies.items() if not is_tunnel_device(device)}
                answers = SkipSwProber(netlink, self.endpoint.local_rundir).ask(tried)
        except SwitchError as error:
            return replace(evidence, remarks=(str(error),))
        ufids = (megaflow.ufid or "" for megaflow in refused)
        driver = {ufid: answers[cookie] for ufid in ufids if (cookie := cookie_of_ufid(ufid)) in answers}
        untried = (_UNTRIED.format(device=device) for device in cookies if is_tunnel_device(device))
        return replace(evidence, driver=driver, remarks=tuple(untried))


def finish_leftovers(endpoint: Endpoint) -> tuple[str, ...]:
    """Undo temporary changes of a killed run, and return a message for each. Raises SwitchError."""
    if is_replaying():
        return ()
    from xenoovs.switch.netlink import RouteSocket
    from xenoovs.switch.offload_setting import OffloadSwitch
    from xenoovs.switch.skip_sw_probe import SkipSwProber
    from xenoovs.switch.vlog import OffloadLog
    from xenoovs.switch.vswitchd import find_process, same_namespace

    messages = []
    if OffloadLog(endpoint).finish():
        messages.append("restored the log levels that an earlier, killed run had raised")
    if OffloadSwitch(endpoint).finish():
        messages.append("finished a `doctor --set` that was killed: hw-offload is as ovs-vswitchd began with it")
    process = find_process(endpoint)
    if process is not None and not same_namespace(process):
        # The rule is in another namespace, so its record must stay.
        return tuple(messages)
    with RouteSocket() as netlink:
        if SkipSwProber(netlink, endpoint.local_rundir).finish():
            messages.append("deleted the trial rule that an earlier, killed run had left behind")
    return tuple(messages)


def has_held_rules(evidence: Evidence) -> bool:
    """Return whether the NIC has rules of traffic control, by the dump."""
    return any(_IN_TC_HARDWARE.search(line) for line in evidence.lines)


def _read_filters(
    lines: Sequence[str], ingress: Set[str], place: Fact[Netns]
) -> tuple[FilterDump | None, tuple[str, ...]]:
    """Return the filters of traffic control, None if there cannot be any, and messages about unreadable ones.

    `ingress`: ports whose filters are read too, as other programs may have some there. `place`: of the devices.
    """
    devices = dict.fromkeys(found[1] for line in lines if (found := _TC_PORT.search(line)))
    if isinstance(place, Unknown):
        return None, (f"traffic control was not read: {place.reason}",) if devices else ()
    from xenoovs.switch.netns import HERE

    if place == HERE:
        devices_here = asked(("ls", "/sys/class/net"), lambda: "\n".join(name for _, name in if_nameindex()))
        ingress = ingress & set((devices_here or "").splitlines())
    if not devices and not ingress:
        return None, ()
    from xenoovs.switch.tc import dump_filters

    try:
        dumped = dump_filters(devices, place, perhaps=ingress)
    except SwitchError as error:
        return None, (f"traffic control was not read: {error}",)
    return dumped, tuple(f"traffic control of {device} was not read: {why}" for device, why in dumped.unread)
