"""The scenarios by name, in the order in which they run.

Those that last longest come first, so that all machines end at once. A new one: a function in `scenarios/`, and a line
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.nic.guest.bench import Bench
from tests.nic.guest.scenarios import (
    accepted,
    ageing,
    beside,
    draining,
    encrypted,
    faulty,
    fleet,
    generated,
    logical,
    refused,
    restarting,
    setup,
    translated,
    tunnels,
)

SCENARIOS: Mapping[str, Callable[[Bench], None]] = {
    "generated": generated.generated,
    "tunnel_esp": encrypted.tunnel_esp,
    "faulty": faulty.faulty,
    "fleet": fleet.fleet,
    "ovn": logical.ovn,
    "planned_restart": restarting.planned_restart,
    "fixed": setup.fixed,
    "nat": translated.nat,
    "tunnel_paths": tunnels.tunnel_paths,
    "drain": draining.drain,
    "unsupported_action": refused.unsupported_action,
    "accepted": accepted.accepted,
    "answers": accepted.answers,
    "table_full": refused.table_full,
    "other_actions": accepted.other_actions,
    "foreign_prefix": accepted.foreign_prefix,
    "unsupported_key": refused.unsupported_key,
    "widened_by_tos": refused.widened_by_tos,
    "skip_sw": refused.skip_sw,
    "few_preferences": refused.few_preferences,
    "hash_collisions": refused.hash_collisions,
    "bucket_chains": refused.bucket_chains,
    "prefix_masks": refused.prefix_masks,
    "foreign_port": refused.foreign_port,
    "hw_offload_off": setup.hw_offload_off,
    "not_restarted": setup.not_restarted,
    "turned_off_not_restarted": setup.turned_off_not_restarted,
    "skip_hw": setup.skip_hw,
    "hw_tc_offload_off": setup.hw_tc_offload_off,
    "idle": ageing.idle,
    "evicted": ageing.evicted,
    "flow_limit": ageing.flow_limit,
    "conntrack": beside.conntrack,
    "foreign_rule": beside.foreign_rule,
    "exporting": beside.exporting,
    "mirrored": beside.mirrored,
    "overriding": beside.overriding,
    "coarse": faulty.coarse,
    "slow_install": faulty.slow_install,
    "port_gone": setup.port_gone,
    "tagged": beside.tagged,
    "tagged_twice": beside.tagged_twice,
    "select_group": beside.select_group,
    "tunnels": tunnels.tunnels,
    "tunnel_neighbour": tunnels.tunnel_neighbour,
    "tunnel_ipsec": tunnels.tunnel_ipsec,
    "tunnel_reload": tunnels.tunnel_reload,
}

TUNNELS = ("tunnels", "tunnel_paths", "tunnel_neighbour", "tunnel_ipsec", "tunnel_reload")
"""Scenarios with flows of their own: no balancer of `balancers/` is judged in them."""

JUDGED = tuple(name for name in SCENARIOS if name not in (*TUNNELS, "nat", "tunnel_esp", "ovn", "fleet"))
