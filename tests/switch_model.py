"""A switch as a flow table and nothing else: what strict flow-mods do to it (OpenFlow 1.4.0, 6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from xenoovs.openflow.flow import Bundle, Command, Flow, FlowKey, FlowMod

Table = Mapping[FlowKey, Flow]


def table_of(flows: Iterable[Flow]) -> Table:
    return {flow.key: flow for flow in flows}


def apply_bundle(table: Table, bundle: Bundle) -> Table:
    for mod in bundle.mods:
        table = apply_mod(table, mod)
    return table


def apply_mod(table: Table, mod: FlowMod) -> Table:
    """An add replaces a flow of its key; a modify changes actions alone; both others do nothing where no flow is."""
    key = mod.flow.key
    match mod.command:
        case Command.ADD:
            return {**table, key: mod.flow}
        case Command.MODIFY:
            return {**table, key: replace(table[key], actions=mod.flow.actions)} if key in table else table
        case Command.DELETE:
            return {k: flow for k, flow in table.items() if k != key}
