"""Traffic control of a kernel as far as the trial uses it, stored in a file so that it outlives its client."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.unit.switch.netlink_samples import INGRESS_QDISC
from xenoovs.switch.netlink import Refused
from xenoovs.switch.skip_sw_probe import RTM_DELTFILTER, RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWTFILTER, TCMSG


@dataclass(frozen=True, slots=True)
class FakeKernel:
    """Implements Netlink. refusal: its answer to every new rule; None: it takes them.

    dies_after_add: the process that adds a rule is killed before it receives the answer.
    """

    path: Path
    refusal: Refused | None = None
    dies_after_add: bool = False

    def rules(self) -> list[bytes]:
        return [bytes.fromhex(text) for text in json.loads(self.path.read_text())]

    def put(self, rules: Sequence[bytes]) -> None:
        self.path.write_text(json.dumps([rule.hex() for rule in rules]))

    def request(self, kind: int, flags: int, body: bytes) -> None:
        if kind == RTM_NEWTFILTER:
            self._add(body)
        elif kind == RTM_DELTFILTER:
            self._delete(body)
        else:
            raise Refused(95, f"no request of type {kind} with flags {flags}")

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        if kind == RTM_GETQDISC:
            # Whatever the device is here, its number is in the message.
            _, *rest = TCMSG.unpack_from(body)
            yield TCMSG.pack(0, rest[0], 0, 0xFFFFFFF1, 1) + INGRESS_QDISC[TCMSG.size :]
        elif kind == RTM_GETTFILTER:
            yield from self.rules()

    def _add(self, body: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.put([*self.rules(), body])
        if self.dies_after_add:
            os.kill(os.getpid(), signal.SIGKILL)

    def _delete(self, body: bytes) -> None:
        left = [rule for rule in self.rules() if _identity(rule) != _identity(body)]
        if len(left) == len(self.rules()):
            raise Refused(2, "Filter with specified priority/protocol not found")
        self.put(left)


def _identity(body: bytes) -> tuple[int, int]:
    """Handle, preference and protocol."""
    _, _, handle, _, info = TCMSG.unpack_from(body)
    return handle, info
