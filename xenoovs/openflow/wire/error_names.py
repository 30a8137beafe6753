"""Names of all errors of OpenFlow 1.4 and of Open vSwitch's own. Sources: OpenFlow 1.4.0, 7.5.4; ofp-errors.h of OVS.

Spelled as Open vSwitch prints them, also where the specification has other words: BAD_STAT for BAD_MULTIPART,
IS_SECONDARY for IS_SLAVE, BAD_VENDOR for BAD_EXPERIMENTER.
"""

from __future__ import annotations

EXPERIMENTER = 0xFFFF
"""OFPET_EXPERIMENTER: the code is the vendor's, whose number follows (7.5.4.18)."""

NICIRA = 0x00002320
ONF = 0x4F4E4600
"""Vendors (include/openflow/openflow-common.h of Open vSwitch: NX_VENDOR_ID, ONF_VENDOR_ID)."""

_PREFIXES = (
    # 0: hello failed
    ("OFPHFC", "INCOMPATIBLE EPERM"),
    # 1: bad request
    (
        "OFPBRC",
        "BAD_VERSION BAD_TYPE BAD_STAT BAD_VENDOR BAD_SUBTYPE EPERM BAD_LEN BUFFER_EMPTY BUFFER_UNKNOWN "
        "BAD_TABLE_ID IS_SECONDARY BAD_PORT BAD_PACKET MULTIPART_BUFFER_OVERFLOW MULTIPART_REQUEST_TIMEOUT "
        "MULTIPART_REPLY_TIMEOUT",
    ),
    # 2: bad action
    (
        "OFPBAC",
        "BAD_TYPE BAD_LEN BAD_VENDOR BAD_VENDOR_TYPE BAD_OUT_PORT BAD_ARGUMENT EPERM TOO_MANY BAD_QUEUE "
        "BAD_OUT_GROUP MATCH_INCONSISTENT UNSUPPORTED_ORDER BAD_TAG BAD_SET_TYPE BAD_SET_LEN BAD_SET_ARGUMENT",
    ),
    # 3: bad instruction
    (
        "OFPBIC",
        "UNKNOWN_INST UNSUP_INST BAD_TABLE_ID UNSUP_METADATA UNSUP_METADATA_MASK BAD_EXPERIMENTER "
        "BAD_EXP_TYPE BAD_LEN EPERM DUP_INST",
    ),
    # 4: bad match
    (
        "OFPBMC",
        "BAD_TYPE BAD_LEN BAD_TAG BAD_DL_ADDR_MASK BAD_NW_ADDR_MASK BAD_WILDCARDS BAD_FIELD BAD_VALUE "
        "BAD_MASK BAD_PREREQ DUP_FIELD EPERM",
    ),
    # 5: flow-mod failed
    (
        "OFPFMFC",
        "UNKNOWN TABLE_FULL BAD_TABLE_ID OVERLAP EPERM BAD_TIMEOUT BAD_COMMAND BAD_FLAGS CANT_SYNC "
        "BAD_PRIORITY IS_SYNC",
    ),
    # 6: group-mod failed
    (
        "OFPGMFC",
        "GROUP_EXISTS INVALID_GROUP WEIGHT_UNSUPPORTED OUT_OF_GROUPS OUT_OF_BUCKETS CHAINING_UNSUPPORTED "
        "WATCH_UNSUPPORTED LOOP UNKNOWN_GROUP CHAINED_GROUP BAD_TYPE BAD_COMMAND BAD_BUCKET BAD_WATCH EPERM",
    ),
    # 7: port-mod failed
    ("OFPPMFC", "BAD_PORT BAD_HW_ADDR BAD_CONFIG BAD_ADVERTISE EPERM"),
    # 8: table-mod failed
    ("OFPTMFC", "BAD_TABLE BAD_CONFIG EPERM"),
    # 9: queue operation failed
    ("OFPQOFC", "BAD_PORT BAD_QUEUE EPERM"),
    # 10: set config failed
    ("OFPSCFC", "BAD_FLAGS BAD_LEN EPERM"),
    # 11: role request failed
    ("OFPRRFC", "STALE UNSUP BAD_ROLE"),
    # 12: meter-mod failed
    (
        "OFPMMFC",
        "UNKNOWN METER_EXISTS INVALID_METER UNKNOWN_METER BAD_COMMAND BAD_FLAGS BAD_RATE BAD_BURST BAD_BAND "
        "BAD_BAND_VALUE OUT_OF_METERS OUT_OF_BANDS",
    ),
    # 13: table features failed
    ("OFPTFFC", "BAD_TABLE BAD_METADATA BAD_TYPE BAD_LEN BAD_ARGUMENT EPERM"),
    # 14: bad property
    ("OFPBPC", "BAD_TYPE BAD_LEN BAD_VALUE TOO_MANY DUP_TYPE BAD_EXPERIMENTER BAD_EXP_TYPE BAD_EXP_VALUE EPERM"),
    # 15: asynchronous configuration failed
    ("OFPACFC", "INVALID UNSUPPORTED EPERM"),
    # 16: flow monitor failed
    ("OFPMOFC", "UNKNOWN MONITOR_EXISTS INVALID_MONITOR UNKNOWN_MONITOR BAD_COMMAND BAD_FLAGS BAD_TABLE_ID BAD_OUT"),
    # 17: bundle failed
    (
        "OFPBFC",
        "UNKNOWN EPERM BAD_ID BUNDLE_EXIST BUNDLE_CLOSED OUT_OF_BUNDLES BAD_TYPE BAD_FLAGS MSG_BAD_LEN "
        "MSG_BAD_XID MSG_UNSUP MSG_CONFLICT MSG_TOO_MANY MSG_FAILED TIMEOUT BUNDLE_IN_PROGRESS",
    ),
)
"""At index `type`: how the names of its codes start, and the rest of the names in the order of their codes."""

_NAMES = tuple(tuple(f"{prefix}_{rest}" for rest in words.split()) for prefix, words in _PREFIXES)

_OF_VENDORS = {
    (NICIRA, 2): "NXBRC_NXM_INVALID",
    (NICIRA, 3): "NXBRC_NXM_BAD_TYPE",
    (NICIRA, 4): "NXBRC_MUST_BE_ZERO",
    (NICIRA, 5): "NXBRC_BAD_REASON",
    (NICIRA, 9): "NXBRC_FM_BAD_EVENT",
    (NICIRA, 10): "NXBRC_UNENCODABLE_ERROR",
    (NICIRA, 11): "NXBAC_MUST_BE_ZERO",
    (NICIRA, 12): "NXFMFC_HARDWARE",
    (NICIRA, 13): "NXFMFC_BAD_TABLE_ID",
    (NICIRA, 15): "NXBAC_BAD_CONJUNCTION",
    (NICIRA, 16): "NXTTMFC_BAD_COMMAND",
    (NICIRA, 17): "NXTTMFC_BAD_OPT_LEN",
    (NICIRA, 18): "NXTTMFC_BAD_FIELD_IDX",
    (NICIRA, 19): "NXTTMFC_TABLE_FULL",
    (NICIRA, 20): "NXTTMFC_ALREADY_MAPPED",
    (NICIRA, 21): "NXTTMFC_DUP_ENTRY",
    (NICIRA, 22): "OFPBFC_BAD_VERSION",
    (NICIRA, 23): "NXQOFC_QUEUE_ERROR",
    (NICIRA, 34): "NXR_NOT_SUPPORTED",
    (NICIRA, 35): "NXR_STALE",
    (NICIRA, 36): "NXST_NOT_CONFIGURED",
    (NICIRA, 37): "NXFMFC_INVALID_TLV_FIELD",
    (NICIRA, 38): "NXTTMFC_INVALID_TLV_DEL",
    (NICIRA, 39): "NXBAC_BAD_HEADER_TYPE",
    (NICIRA, 40): "NXBAC_UNKNOWN_ED_PROP",
    (NICIRA, 41): "NXBAC_BAD_ED_PROP",
    (NICIRA, 42): "NXBAC_CT_DATAPATH_SUPPORT",
    (NICIRA, 43): "NXBMC_CT_DATAPATH_SUPPORT",
    (NICIRA, 44): "NXTFFC_DUP_TABLE",
    (ONF, 4250): "OFPBAC_BAD_SET_MASK",
}


def error_name(kind: int, code: int, *, vendor: int | None = None) -> str:
    """The name of an error; `type 5, code 99` for one that has none."""
    if kind == EXPERIMENTER and vendor is not None:
        return _OF_VENDORS.get((vendor, code), f"vendor {vendor:#x}, code {code}")
    if kind < len(_NAMES) and code < len(_NAMES[kind]):
        return _NAMES[kind][code]
    return f"type {kind}, code {code}"
