"""Probes of the host return a reason where they cannot read a fact."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.errors import ParseError
from xenoovs.switch.devices import parse_sysctls
from xenoovs.switch.netns import Netns


def test_an_answer() -> None:
    assert Netns().ask("echo", "hello") == "hello\n"


def test_a_program_that_is_not_installed() -> None:
    assert Netns().ask("no-such-program") == Unknown("no-such-program is not installed")


def test_a_program_that_fails_is_quoted() -> None:
    assert Netns().ask("cat", "/no/such/file") == Unknown(
        "`cat /no/such/file`: cat: /no/such/file: No such file or directory"
    )


def test_text_that_is_not_understood() -> None:
    answer = Netns().read(("echo", "hello"), parse_sysctls)
    assert isinstance(answer, Unknown)
    assert answer.reason.startswith("not understood: ")


def test_inside_a_namespace() -> None:
    argv = Netns(Path("/run/netns/x")).argv("tc", "qdisc")
    assert argv == ["nsenter", "--net=/run/netns/x", "tc", "qdisc"]


def test_the_larger_one_of_all_and_device_works() -> None:
    assert parse_sysctls("1\n0\n0\n2\n0\n0\n") == {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}


@pytest.mark.parametrize("text", ["", "1\n0\n", "1\n0\n0\n2\n0\nx\n"])
def test_other_numbers_of_lines_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_sysctls(text)
