"""Cases for the tests of why: a megaflow, a host that offloads, and changes to both."""

from __future__ import annotations

from dataclasses import replace

from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.host import Daemon, Device, Feature, HostFacts, OffloadHistory, OffloadState
from xenoovs.datapath.megaflow import Megaflow, verdict_of
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import Case
from xenoovs.judge.why.diagnose import Selection, diagnose
from xenoovs.judge.why.reason import Reason

UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
COOKIE = "b91ad343cc4f394eaf4a80bd325adc34"
"""Of the megaflow with UFID, as traffic control has shown it."""

ON = OffloadState(is_on=True, evidence="`upcall/show` counts offloaded flows")
OFF = OffloadState(is_on=False, evidence="nothing of it in the log since the start")
WHOLE = OffloadHistory(
    has_started=True, tc_policy="none", providers={"p0": "linux_tc", "p1": "linux_tc"}, is_complete=True
)


def megaflow(
    layer: str = "dp:tc",
    actions: str = "set(eth(dst=02:00:5e:10:00:02)),p1",
    *,
    keys: str = "dp_hash(0/0)",
    in_port: str = "p0",
) -> Megaflow:
    """One of a block, as OVS 3.1 prints it."""
    return parse_megaflow(
        f"ufid:{UFID}, recirc_id(0),{keys},in_port({in_port}),eth(src=00:00:00:00:00:00/00:00:00:00:00:00,"
        "dst=02:00:5e:10:00:01),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.3,dst=10.3.10.45,proto=17,tos=0/0,ttl=0/0,"
        f"frag=no),udp(src=0/0,dst=53), packets:3, bytes:294, used:1.301s, {layer}, actions:{actions}"
    )


def device(name: str, *, switch_id: str | None = "65737769746368", hw_tc_offload: bool = True) -> Device:
    return Device(name, True, 1500, switch_id=switch_id, hw_tc_offload=Feature(hw_tc_offload), ingress=True)


def host(
    *,
    offload: OffloadState = ON,
    history: OffloadHistory = WHOLE,
    config: dict[str, str] | None = None,
    datapath: str = "system",
    devices: tuple[Device, ...] = (device("p0"), device("p1")),
    port_type: str = "system",
) -> HostFacts:
    """A host on which everything is as it should be, but for what is given."""
    ports = (PortState("ovsbr1", type="internal"), PortState("p0", type=port_type), PortState("p1", type=port_type))
    database = Database(
        config={"hw-offload": "true"} if config is None else config,
        bridges=(BridgeState("ovsbr1", datapath_type=datapath, ports=ports),),
    )
    return HostFacts(
        is_local=True,
        database=database,
        daemon=Daemon(offload=offload, history=history, flow_limit=200000, version="3.1.0"),
        devices={known.name: known for known in devices},
    )


def case(found: Megaflow | None = None, *, seen: HostFacts | None = None, evidence: Evidence | None = None) -> Case:
    """The case of a megaflow that is not in hardware."""
    found = found or megaflow()
    verdict = verdict_of(found)
    assert verdict is not None
    evidence = evidence or Evidence(seen or host(), target=CommandTarget(config="my.yaml"))
    return Case(found, verdict, None, replace(evidence, host=seen or evidence.host))


def shown(found: Case) -> str:
    """The reasons of its diagnosis: cause, likelihood and text, and below them the evidence, fixes and source."""
    known = found.evidence
    (diagnosed,) = diagnose(Selection([found], shapes={*known.in_hardware}, layers={*known.layers}), known)
    return "\n".join(map(_reason, diagnosed.reasons))


def _reason(reason: Reason) -> str:
    lines = [f"{reason.cause.value}, {reason.likelihood.name.lower()}: {reason.text}"]
    lines += [f"  seen: {each}" for each in reason.evidence]
    lines += [f"  fix: {each}" for each in reason.fix]
    return "\n".join(lines + [f"  source: {reason.source}"] * bool(reason.source))
