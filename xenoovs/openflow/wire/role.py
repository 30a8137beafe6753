"""Which of several controllers may change a switch (OpenFlow 1.4.0, 6.3.5, 7.3.8 and 7.4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.openflow.wire.reader import Reader

_REQUEST = Struct("!I4xQ")
_STATUS = Struct("!IB3xQ")


class Role(Enum):
    """enum ofp_controller_role. NOCHANGE only asks."""

    NOCHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


class RoleReason(Enum):
    """Why a role was taken away (enum ofp_controller_role_reason)."""

    MASTER_REQUEST = 0
    CONFIG = 1
    EXPERIMENTER = 2


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """generation_id: 64 bits; MASTER and SLAVE with an older one than the switch saw are refused (OFPRRFC_STALE)."""

    role: Role
    generation_id: int = 0


@dataclass(frozen=True, slots=True)
class RoleReply:
    """generation_id: all ones where no controller has told one yet."""

    role: Role
    generation_id: int


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """The role of this controller was changed by others. properties: bytes as they came."""

    role: Role
    reason: RoleReason
    generation_id: int
    properties: bytes = b""


def encode_role(message: RoleRequest | RoleReply) -> bytes:
    return _REQUEST.pack(message.role.value, message.generation_id)


def decode_role(body: Reader) -> tuple[Role, int]:
    """role, generation_id. Raises WireError."""
    start = body.offset
    number, generation_id = body.unpack(_REQUEST, "a role")
    return _role(body, number, at=start), generation_id


def encode_role_status(status: RoleStatus) -> bytes:
    fixed = _STATUS.pack(status.role.value, status.reason.value, status.generation_id)
    return fixed + status.properties


def decode_role_status(body: Reader) -> RoleStatus:
    """Raises WireError."""
    start = body.offset
    number, reason, generation_id = body.unpack(_STATUS, "a role status")
    role = _role(body, number, at=start)
    if reason not in _REASONS:
        body.offset = start + 4
        raise body.error("the reason of a role status")
    return RoleStatus(role, _REASONS[reason], generation_id, body.rest())


_ROLES = {role.value: role for role in Role}
_REASONS = {reason.value: reason for reason in RoleReason}


def _role(body: Reader, number: int, *, at: int) -> Role:
    if number not in _ROLES:
        body.offset = at
        raise body.error("a role of a controller")
    return _ROLES[number]
