"""What a switch reports unasked, in words."""

from __future__ import annotations

from xenoovs.openflow.wire.error import Error


def describe_error(error: Error) -> dict[str, object]:
    """Name of the error and the message that it is about."""
    if len(error.refused) < 2:
        return {"error": error.name}
    kind = error.refused[1]
    return {"error": error.name, "about": _KINDS.get(kind, f"message type {kind}"), "xid": error.refused_xid}


_KINDS = {
    2: "ECHO_REQUEST",
    9: "SET_CONFIG",
    13: "PACKET_OUT",
    14: "FLOW_MOD",
    18: "MULTIPART_REQUEST",
    20: "BARRIER_REQUEST",
    24: "ROLE_REQUEST",
    28: "SET_ASYNC",
    33: "BUNDLE_CONTROL",
    34: "BUNDLE_ADD_MESSAGE",
}
"""Requests that a controller sends (OpenFlow 1.4.0, 7.1.1: enum ofp_type)."""
