"""What a `learn` action makes of a packet (ovs-actions(7), "The learn action")."""

from __future__ import annotations

from xenoovs.openflow.action import Action, Learn, Output
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import exact, match_of
from xenoovs.simulate.headers import Headers


def learned_flow(learn: Learn, headers: Headers) -> Flow:
    """The flow that is added. Its port is the number in the register, as no name is known here."""
    kind = (exact(Field.DL_TYPE, learn.dl_type), exact(Field.NW_PROTO, learn.nw_proto))
    match = match_of((*kind, *(exact(field, headers.get(field)) for field in learn.same)))
    actions: tuple[Action, ...] = (*learn.writes, Output(str(headers.get(learn.output))))
    key = FlowKey(learn.table, learn.priority, match)
    return Flow(key, learn.cookie, actions, (f"idle_timeout={learn.idle_timeout_s}",))
