"""`xenoovs verify-offload`: checks whether the NIC forwards the packets of each block."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.offload_report import ReportOptions, show, show_bridge
from xenoovs.datapath.megaflow import Verdict
from xenoovs.diagnosis.offload import (
    BlockChecker,
    block_checker,
    check_live_bridge,
    check_recorded_bridge,
    check_recorded_dump,
)
from xenoovs.errors import SwitchError
from xenoovs.evidence.collector import Collector
from xenoovs.evidence.command_target import THIS_HOST
from xenoovs.judge.findings import Conclusion, OffloadFindings, carry_over
from xenoovs.judge.report import bridge_to_json, to_json
from xenoovs.terminal.completion import complete_bridge, complete_service
from xenoovs.terminal.defaults import environment_config, find_config, option
from xenoovs.terminal.load import check_service, load, recorded, resolved
from xenoovs.terminal.options import (
    FILE,
    INTERVAL_S,
    findings_option,
    from_dump_option,
    from_flows_option,
    given_option,
    interval_option,
    optional_config_argument,
    record_option,
    require_no_live_option,
    share,
    switch_options,
    time_option,
)
from xenoovs.terminal.output import answer, echo, is_text, print_json, repeat
from xenoovs.terminal.reach import address_commands, reach, replayed, where_of

if TYPE_CHECKING:
    from xenoovs.judge.bridge import BridgeFindings
    from xenoovs.switch.management import ManagementSwitch


@click.command("verify-offload")
@optional_config_argument
@switch_options
@record_option("wait_s", "watch", "from_dump", "name_flows")
@click.option(
    "--bridge",
    metavar="NAME",
    shell_complete=complete_bridge,
    help="Without FILE: check all megaflows of any bridge, such as OVN's br-int.",
)
@from_dump_option
@from_flows_option
@time_option("--wait", help="Repeat until every block had traffic, at most for TIME.")
@click.option("--watch", is_flag=True, help="Repeat every 2 s until interrupted.")
@interval_option
@click.option(
    "--diff",
    "before",
    type=FILE,
    metavar="BEFORE",
    help="With --record: compare with an earlier record. Does the NIC still forward what it did?",
)
@click.option(
    "--require",
    "required",
    type=share,
    metavar="SHARE",
    help="Require only this share of the packets in hardware, such as 95%.",
)
@click.option("--blocks", is_flag=True, help="Show every block, not only backends.")
@click.option(
    "--tree",
    is_flag=True,
    help="Show every megaflow, with its rule of traffic control: below its block, or below the one that recirculates "
    "packets to it, with tunnels and zones of connection tracking.",
)
@click.option(
    "--flows",
    "name_flows",
    is_flag=True,
    help="With --bridge and --tree: name the OpenFlow flows behind each megaflow, and OVN's logical flows. Asks the "
    "southbound database for them.",
)
@click.option(
    "--service",
    "services",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_service,
    help="Judge only this service with its answers; repeatable.",
)
@click.option(
    "--verdict",
    "verdicts",
    type=click.Choice([verdict.value for verdict in Verdict], case_sensitive=False),
    multiple=True,
    help="Show only blocks and other traffic with this verdict; repeatable. The exit status still judges all.",
)
@findings_option
def verify_offload_command(
    config: Path | None,
    *,
    bridge: str | None,
    from_dump: Path | None,
    from_flows: Path | None,
    wait_s: float | None,
    watch: bool,
    interval_s: float | None,
    before: Path | None,
    required: float | None,
    blocks: bool,
    tree: bool,
    name_flows: bool,
    services: tuple[str, ...],
    verdicts: tuple[str, ...],
) -> int:
    """Check for each block of the config FILE where its packets are forwarded, with one dump of the datapath.

    \b
    HW            in the NIC
    UNCONFIRMED   the NIC holds the rule, but no counter proves that it forwards by it
    PARTIAL       the NIC matches, the CPU forwards
    TC_SW         in the kernel's traffic control
    IDLE_HW       the NIC holds the rule and does not use it: the CPU forwards
    SW            in Open vSwitch's software datapath
    CONTRADICTED  the NIC counts the packets, but the CPU got them
    ABSENT        no megaflow: no traffic yet, or idle longer than max-idle (10 s)

    (answers) of backends to clients, and (other) traffic of no service, have their own rows and are judged too. There
    HW to ABSENT count megaflows, elsewhere blocks. MEGAFLOWS: found/predicted, for clients behind one MAC. IN HW:
    share of the packets. Do not compare bytes: traffic control in software does not count 14 bytes of each frame.

    Without FILE, with --bridge or --from-dump, it judges all megaflows by port.

    Where the NIC holds rules it makes two samples, 2 s apart (--interval): run it while traffic flows.

    --record AFTER --diff BEFORE compares two records. For each class of traffic (bridge, port in, ports out, kinds of
    actions) it shows verdict, share in hardware and packets between the two samples of a record, and new reasons. Below
    are settings, versions and devices that changed, the most likely causes first. Send the same traffic for both: a
    class that had packets and has none now is worse, unless a new class of its port has some. Exit status 0: nothing
    got worse, 2: some traffic did, 3: a record has no traffic.

    Exit status 0: every block that has had traffic and all answers are in hardware (with --require: enough of their
    packets), or the CPU encrypts their tunnel as the config says, 2: not all are, or packets that need IPsec leave
    unencrypted, 1: it could not check, 3: no block had traffic yet, some are UNCONFIRMED, or a recorded dump may be
    filtered. Other traffic does not change it, nor does --verdict; --service limits it to some services.
    """
    if before is not None:
        needless = "bridge", "from_flows", "blocks", "tree", "services", "verdicts", "required"
        given = "FILE" if config else given_option(*needless)
        if (record := replayed()) is None or given:
            raise click.UsageError(f"--diff goes with --record{f', without {given}' if given else ''}.")
        # Imported here: few runs compare.
        from xenoovs.cli.compare import compare

        return compare(before, record[1], record[0])
    if option("output") == "sarif":
        raise click.UsageError("-o sarif goes with --diff.")
    if config is None and bridge is None:
        config = environment_config() if from_dump else find_config("--bridge NAME")
    require_no_live_option("wait_s", "watch", "interval_s")
    if from_flows is not None and (from_dump is None or config is None):
        raise click.UsageError("--from-flows goes with the config FILE and --from-dump.")
    if [config, from_dump, from_flows].count(Path("-")) > 1:
        raise click.UsageError("standard input can be only one of FILE, DUMP and FLOWS.")
    if watch and wait_s:
        raise click.UsageError("--wait and --watch exclude each other.")
    if config is None and (given := given_option("wait_s", "blocks", "services")):
        raise click.UsageError(f"{given} needs the config FILE.")
    if name_flows and (config is not None or from_dump is not None or not tree):
        raise click.UsageError("--flows goes with --bridge and --tree, without FILE and --from-dump.")
    shown = ReportOptions(services, tuple(map(Verdict, verdicts)), blocks=blocks, tree=tree, required=required)

    def check_of_config(file: Path) -> int:
        balancer = load(file, of_dpu=True)
        for service in services:
            check_service(balancer, service)
        target = THIS_HOST
        if from_dump is not None:
            findings = check_recorded_dump(recorded(balancer), from_dump, from_flows, is_listing=tree)
        else:
            balancer, reached = resolved(balancer), collector_of(reach())
            findings, target = _check(block_checker(balancer, reached), shown, wait_s=wait_s or 0), reached.target
        judged = shown.judged(findings)
        answer(lambda: _document(judged, shown), lambda: show(findings, replace(shown, target=target)))
        return int(judged.conclusion_for(required))

    @cache
    def collector_of(switch: ManagementSwitch) -> Collector:
        """Return a collector, which compares with its last sample with --watch."""
        between_s = INTERVAL_S if interval_s is None else interval_s
        return Collector(switch, interval_s=between_s, target=where_of(switch.endpoint, config))

    def run() -> int:
        if config is not None:
            return check_of_config(config)
        if from_dump is not None:
            return int(_show_bridge(check_recorded_bridge(bridge, from_dump, is_listing=tree), shown))
        findings = check_live_bridge(bridge or "", collector_of(reach()), is_listing=tree, is_naming_flows=name_flows)
        return int(_show_bridge(findings, shown))

    def watched() -> None:
        try:
            run()
        except SwitchError as error:
            # As during a restart, whose end is shown.
            if not error.retryable:
                raise
            address_commands(error, config)
            echo(f"cannot check now; retrying: {error}", err=True)

    if watch:
        repeat(watched, INTERVAL_S)
    return run()


def _document(judged: OffloadFindings, shown: ReportOptions) -> dict[str, object]:
    part = shown.part(judged)
    document = to_json(judged, required=shown.required, part=part)
    selection = {"services": list(shown.services), "verdicts": [verdict.value for verdict in shown.verdicts]}
    document["selection"] = selection if any(selection.values()) else None
    if shown.tree:
        from xenoovs.judge.tree import OffloadTree

        document["tree"] = OffloadTree(judged if part is None else part).to_json()
    return document


def _show_bridge(findings: BridgeFindings, shown: ReportOptions) -> Conclusion:
    if not is_text():
        document = bridge_to_json(findings, required=shown.required, verdicts=shown.verdicts or None)
        if shown.tree:
            from xenoovs.judge.links import link_to_json

            names, links = (findings.logical_ports, findings.logical_flows), findings.links_of(shown.verdicts)
            document["links"] = [link_to_json(link, *names) for link in links]
        print_json(document)
    else:
        show_bridge(findings, shown)
    return findings.conclusion_for(shown.required)


def _check(checker: BlockChecker, shown: ReportOptions, *, wait_s: float) -> OffloadFindings:
    """Sample once, or until every judged block had traffic; for each block, the last sample that has it counts."""
    deadline = time.monotonic() + wait_s
    findings = checker.check(is_listing=shown.tree)
    while _is_open(shown.judged(findings)) and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(INTERVAL_S, left_s))
        findings = carry_over(findings, checker.check(is_listing=shown.tree))
    return findings


def _is_open(findings: OffloadFindings) -> bool:
    """Return whether more traffic may change the verdict on a block."""
    return bool(findings.absent) or any(block.verdict is Verdict.UNCONFIRMED for block in findings.blocks)
