"""`xenoovs verify-offload`: does the NIC do the work?"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import (
    Output,
    duration,
    load_recorded,
    load_resolved,
    output_option,
    reach,
    share,
    switch_options,
)
from xenoovs.cli.output import is_terminal, print_json
from xenoovs.errors import SwitchError

if TYPE_CHECKING:
    from xenoovs.cli.offload_look import Look, Looker
    from xenoovs.verify.findings import Conclusion

_INTERVAL_S = 2.0
"""Between two looks: Open vSwitch reads the counters of hardware no more often (offloaded-stats-delay)."""

_FILE = click.Path(allow_dash=True, path_type=Path)

_FROM_DUMP = (
    "Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input. No switch is asked. A dump "
    "made with type= or filter= lacks what it left out: one that is offloaded throughout may be such (exit status 3)."
)
_FROM_FLOWS = (
    "With --from-dump: the output of `ovs-ofctl --names dump-flows`, which tells the blocks as they were, and the "
    "flows of others."
)
_WAIT = "Look again until every block was seen, at most for TIME (10s, 500ms, 2m)."
_REQUIRE = "Judge by the share of packets in hardware instead, such as 95%."


@dataclass(frozen=True, slots=True)
class Request:
    """The options of one call."""

    config: Path | None
    db: str | None
    lab: str | None
    bridge: str | None
    from_dump: Path | None
    from_flows: Path | None
    wait_s: float | None
    watch: bool
    require: float | None
    blocks: bool
    output: Output

    def check(self) -> None:
        """Raises click.UsageError for options that exclude each other."""
        live = {"--db": self.db, "--lab": self.lab, "--wait": self.wait_s, "--watch": self.watch}
        given = [name for name, value in live.items() if value]
        if (self.config is None) == (self.bridge is None):
            raise click.UsageError("give either the config FILE, or --bridge NAME for a bridge without one.")
        if self.from_dump is not None and given:
            raise click.UsageError(f"--from-dump asks no switch, so {given[0]} has no use.")
        if self.from_flows is not None and (self.from_dump is None or self.bridge is not None):
            raise click.UsageError("--from-flows goes with the config FILE and --from-dump.")
        if [self.config, self.from_dump, self.from_flows].count(Path("-")) > 1:
            raise click.UsageError("standard input can be only one of FILE, DUMP and FLOWS.")
        if self.watch and self.wait_s:
            raise click.UsageError("--wait and --watch exclude each other.")
        if self.bridge is not None and (self.wait_s or self.blocks):
            raise click.UsageError("--wait and --blocks need the config FILE.")

    def run(self) -> Conclusion:
        """Look, show, and tell the exit status."""
        if not self.watch:
            return self.look_once()
        while True:
            if is_terminal():
                click.clear()
            self._look_again()
            time.sleep(_INTERVAL_S)

    def _look_again(self) -> None:
        """A switch that restarts is what whoever watches wants to see the end of."""
        from xenoovs.cli.where import lead

        try:
            self.look_once()
        except SwitchError as error:
            if not error.retryable:
                raise
            lead(error, config=self.config, db=self.db, lab=self.lab)
            click.echo(f"not now: {error}", err=True)

    def look_once(self) -> Conclusion:
        """One report, which takes several looks with --wait."""
        return self._bridge(self.bridge) if self.bridge is not None else self._config()

    def _bridge(self, bridge: str) -> Conclusion:
        from xenoovs.cli.offload_look import look_at_bridge, look_at_bridge_dump
        from xenoovs.verify.report_json import bridge_to_json

        if self.from_dump is not None:
            findings = look_at_bridge_dump(bridge, self.from_dump)
        else:
            findings = look_at_bridge(bridge, reach(self.db, self.lab))
        if self.output is Output.JSON:
            print_json(bridge_to_json(findings, required=self.require))
        else:
            from xenoovs.cli.show_offload import show_bridge

            show_bridge(findings, required=self.require)
        return findings.conclusion_for(self.require)

    def _config(self) -> Conclusion:
        from xenoovs.cli.offload_look import look_at_dump, looker_of
        from xenoovs.verify.report_json import to_json

        config = self.config or Path("-")
        if self.from_dump is not None:
            look = look_at_dump(load_recorded(config), self.from_dump, self.from_flows)
        else:
            balancer = load_resolved(config)
            look = _look(looker_of(balancer, reach(self.db, self.lab)), wait_s=self.wait_s or 0)
        if self.output is Output.JSON:
            told = to_json(look.findings, required=self.require, origins=look.origins, remarks=look.remarks)
            print_json(told)
        else:
            from xenoovs.cli.show_offload import show

            show(look, blocks=self.blocks, required=self.require)
        return look.findings.conclusion_for(self.require)


def _look(looker: Looker, *, wait_s: float) -> Look:
    """One look, or several until every block was seen; of each block the last look that saw it counts."""
    from xenoovs.verify.findings import carry_over

    deadline = time.monotonic() + wait_s
    look = looker.look()
    while look.findings.absent and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(_INTERVAL_S, left_s))
        again = looker.look()
        look = replace(again, findings=carry_over(look.findings, again.findings))
    return look


@click.command("verify-offload")
@click.argument("config", metavar="[FILE]", required=False, type=_FILE)
@switch_options
@click.option("--bridge", metavar="NAME", help="Without FILE: all megaflows of any bridge, such as OVN's br-int.")
@click.option("--from-dump", type=_FILE, metavar="DUMP", help=_FROM_DUMP)
@click.option("--from-flows", type=_FILE, metavar="FLOWS", help=_FROM_FLOWS)
@click.option("--wait", "wait_s", type=duration, metavar="TIME", help=_WAIT)
@click.option("--watch", is_flag=True, help="Look again every 2 s, until interrupted.")
@click.option("--require", type=share, metavar="SHARE", help=_REQUIRE)
@click.option("--blocks", is_flag=True, help="Show every block, not only backends.")
@output_option
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Say for each block of the config FILE where its packets are forwarded, from one dump of the datapath.

    \b
    HW       in the NIC                         PARTIAL  the NIC matches, the CPU forwards
    TC_SW    in the kernel's traffic control    SW       in Open vSwitch's software datapath
    ABSENT   no megaflow: no traffic yet, or idle longer than max-idle (10 s). Neither good nor bad.

    MEGAFLOWS: found/predicted, for clients behind one MAC. IN HW: share of packets; bytes do not compare, as software
    traffic control leaves 14 bytes of each frame out of its count.

    Exit status 0: every block that has had traffic is in hardware (with --require: enough packets), 2: not,
    1: it could not look, 3: nothing seen yet, or a recorded dump that may be filtered.
    """
    request = Request(**options)
    request.check()
    context.exit(int(request.run()))
