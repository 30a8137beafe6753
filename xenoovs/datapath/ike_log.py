"""The log of the IKE daemon: why two ends make no SA, as charon (strongSwan) and pluto (Libreswan) write it.

Texts: strongSwan 5.9, 6.0 (src/libcharon, src/libstrongswan), Libreswan 4.10 (programs/pluto), at default levels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from xenoovs.dataclass import dataclass
from xenoovs.display import printable
from xenoovs.regex import ASCII, regex

READ_LOG = (
    *("journalctl", "--quiet", "--no-pager", "--output=short-iso", "--since=-1h", "--lines=5000"),
    *("-t", "charon", "-t", "pluto"),
)
"""What both programs have written to syslog(3) lately."""

_LINE = regex(r"(?P<at>\S+) \S+ (?P<program>charon|pluto)(?:\[\d+\])?: (?P<text>.*)")
_OF_THREAD = regex(r"(?P<thread>\d+)\[[A-Z]{3}\] (?P<text>.*)", ASCII)
"""charon: its worker threads handle a packet each; lines do not name the peer, but their thread."""
_RECEIVED = regex(r"received packet: from (?P<peer>[0-9a-f.:]+)\[")
_SENT = regex(r"sending packet: from \S+ to (?P<peer>[0-9a-f.:]+)\[")
_IDENTITIES = regex(r"looking for peer configs matching \S+\[(?P<here>.*?)\]\.\.\.\S+\[(?P<there>.*?)\]$")
_OF_CONNECTION = regex(r'(?:ERROR: )?"(?P<port>.+?)(?:-in|-out)?-\d+"(?: #\d+)?: (?P<text>.*)', ASCII)
"""pluto: connections are named after ports (transp_tmpl of ipsec/ovs-monitor-ipsec.in of Open vSwitch)."""
_RESENT = regex(r"retransmit (?:[2-9]|\d\d) of request", ASCII)
_DONE = regex(r"CHILD_SA \S+ established|(?:initiator|responder) established Child SA", ASCII)
_WEAK_S = 300.0
_LONGEST = 300
"""Characters of a log that are shown: names in it come from the other end."""

_NO_ESP = "the kernel of this host takes no SA: does it have ESP (esp4) and AES-GCM (gcm, seqiv, drbg)?"
_NO_CHILD = "it makes no SA: its kernel takes none, or both ends have no algorithm in common; see its log"
_NO_CONNECTION = "it knows no such tunnel, or both ends have no algorithm in common: run doctor there"
_REFUSED = (
    "it refuses the certificate, key or name of this host, or the name that remote_name gives it; only its own log has "
    "the reason (`journalctl -t charon -t pluto` there)"
)
_SILENT = "it does not answer: do UDP ports 500 and 4500 pass, and does an IKE daemon run there?"
_OTHER_KEY = "its pre-shared key is another one"

_WEAK = frozenset((_NO_CHILD, _NO_CONNECTION, _REFUSED, _SILENT))
"""The end that wrote the line does not know the reason, or the next packet may succeed."""

_CHARON = {
    r"subject certificate invalid \((.*)\)": "its certificate is {0}, and now is not that time",
    r"no issuer certificate found for (.*)": "its certificate {0} is signed by no authority that this host trusts",
    r"no trusted \S+ public key found for (.*)": "this host trusts no certificate of it with the name {0}",
    r"constraint check failed: identity (.+) required": "it does not have the name {0} of remote_name",
    r"tried \d+ shared keys? for .*, but MAC mismatched": _OTHER_KEY,
    r"no shared key found for (.*)": "this host has no pre-shared key for {0}",
    r"no private key found for (.*)": "this host has no private key for its own name {0}",
    r"unable to install .*IPsec SA": _NO_ESP,
    r"received NO_PROPOSAL_CHOSEN notify": _NO_CHILD,
    r"received AUTHENTICATION_FAILED notify": _REFUSED,
}
_PLUTO = {
    r"NSS: ERROR: IPsec certificate (.*) invalid: \S+: (.*?)\.?$": "its certificate {0} is refused: {1}",
    r".*subjectAltName extension (?:does not|to) match ID_FQDN '@?(.*)'": "its certificate is not for the name {0}",
    r"X509: no EE-cert in chain": "its certificate is that of an authority (basicConstraints CA:TRUE)",
    r"failed to add connection: left certificate '(.*)' not found in the NSS database": (
        "pluto does not find the certificate {0}: start ovs-monitor-ipsec with --ipsec-d=/var/lib/ipsec/nss on Debian"
    ),
    r"authentication failed: computed hash does not match": _OTHER_KEY,
    r"authentication failed: no certificate matched .* and '@?(.*)'": "no certificate of it has the name {0}",
    r"netlink response for Add SA .*Function not implemented": _NO_ESP,
    r"CREATE_CHILD_SA failed with error notification": _NO_CHILD,
    r"dropping unexpected IKE_SA_INIT message containing NO_PROPOSAL_CHOSEN": _NO_CONNECTION,
    r"IKE SA authentication request rejected by peer: AUTHENTICATION_FAILED": _REFUSED,
    r"STATE_V2_PARENT_I1: retransmission; will wait (?:[2-9]|\d\d)": _SILENT,
}
"""Forms of a line -> causes."""


@dataclass(frozen=True, slots=True)
class IkeFailure:
    """Why the last attempt to make an SA failed. `at`: when, as journalctl(1) prints it. `cause`: a clause in which
    `it` is the remote."""

    at: str
    cause: str

    @property
    def is_weak(self) -> bool:
        """Whether it says less than another one of the last minutes."""
        return self.cause in _WEAK

    def __str__(self) -> str:
        time = self.at.partition("T")[2][:8]
        return f"{self.cause} (at {time})" if time else self.cause


def parse_ike_log(text: str) -> dict[str, IkeFailure]:
    """Return the last failure with each remote, by its address (charon) or by the tunnel port (pluto)."""
    reader = _LogReader()
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is not None:
            read = reader.read_charon if found["program"] == "charon" else reader.read_pluto
            read(found["at"], found["text"])
    return reader.failures


class _LogReader:
    """Reads line by line. `failures`: those so far."""

    def __init__(self) -> None:
        self.failures = dict[str, IkeFailure]()
        self._peers = dict[str, str]()
        self._failed = set[str]()
        self._identities = dict[str, tuple[str, str]]()

    def read_charon(self, at: str, line: str) -> None:
        found = _OF_THREAD.match(line)
        if found is None:
            return
        thread, text = found["thread"], found["text"]
        received, identities = _RECEIVED.match(text), _IDENTITIES.match(text)
        if received is not None:
            self._peers[thread] = received["peer"]
            self._failed.discard(thread)
        elif identities is not None:
            self._identities[thread] = (identities["here"], identities["there"])
        elif _RESENT.match(text):
            self._peers[thread] = ""
        elif (sent := _SENT.match(text)) is not None and self._peers.get(thread) == "":
            self._peers[thread] = sent["peer"]
            self._note(sent["peer"], IkeFailure(at, _SILENT))
        elif _DONE.match(text):
            self.failures.pop(self._peers.get(thread, ""), None)
        elif self._peers.get(thread) and thread not in self._failed:
            failure = self._failure_of_charon(at, thread, text)
            if failure is not None:
                # What follows of the same packet are consequences, or older certificates of the peer.
                self._failed.add(thread)
                self._note(self._peers[thread], failure)

    def _failure_of_charon(self, at: str, thread: str, text: str) -> IkeFailure | None:
        if text == "no matching peer config found":
            here, there = map(_shown, self._identities.get(thread, ("", "")))
            return IkeFailure(at, f"it calls itself {there} and this host {here}: remote_name of an end says otherwise")
        return _failure(at, text, _CHARON)

    def read_pluto(self, at: str, line: str) -> None:
        found = _OF_CONNECTION.match(line)
        failure = None if found is None else _failure(at, found["text"], _PLUTO)
        if found is not None and failure is not None:
            self._note(found["port"], failure)
        elif found is not None and _DONE.match(found["text"]):
            self.failures.pop(found["port"], None)

    def _note(self, peer: str, failure: IkeFailure) -> None:
        before = self.failures.get(peer)
        if before is None or not (failure.is_weak and not before.is_weak and _is_soon(before.at, failure.at)):
            self.failures[peer] = failure


def _failure(at: str, text: str, forms: Mapping[str, str]) -> IkeFailure | None:
    for pattern, cause in forms.items():
        found = re.match(pattern, text, ASCII)
        if found is not None:
            return IkeFailure(at, cause.format(*map(_shown, found.groups())))
    return None


def _shown(text: str) -> str:
    return printable(text[:_LONGEST].strip("'\""))


def _is_soon(before: str, after: str) -> bool:
    try:
        begin, end = (datetime.strptime(at, "%Y-%m-%dT%H:%M:%S%z") for at in (before, after))
    except ValueError:
        return False
    return (end - begin).total_seconds() < _WEAK_S
