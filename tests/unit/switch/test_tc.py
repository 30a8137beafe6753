"""Commands for tc, and the results of its output; a script stands in for tc."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.datapath.test_tc import COOKIE
from xenoovs.errors import CommandMissing, SwitchError
from xenoovs.switch.tc import dump_filters

FILTER = {"protocol": "ip", "pref": 2, "options": {"handle": 1, "in_hw": True, "actions": [{"cookie": COOKIE}]}}


def _answer(directory: Path, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
    """A tc that answers by its arguments, blanks as underscores; anything else it refuses."""
    cases = [f"{name}) cat <<'END'\n{text}\nEND\n;;" for name, text in answers.items()]
    refuse = """*) echo "Cannot find device" >&2; exit 1;;"""
    script = directory / "tc"
    script.write_text("\n".join(["#!/bin/sh", """case "$(echo $* | tr ' -' '__')" in""", *cases, refuse, "esac"]))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_filters_of_devices_by_cookie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(tmp_path, monkeypatch, _j_qdisc_show="[]", _j__s_filter_show_dev_p0_ingress=json.dumps([FILTER]))
    dump = dump_filters(["p0", "gone"])
    assert (list(dump.by_cookie), dump.unread) == ([COOKIE], (("gone", "Cannot find device"),))


def test_filters_of_several_devices_are_read_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = f"[]\n{json.dumps([FILTER])}"
    _answer(tmp_path, monkeypatch, _j_qdisc_show="[]", _j__s__batch__=both)
    dump = dump_filters(["p0", "p1"])
    assert (dump.unread, [device for device, _ in dump.by_device]) == ((), ["p1"])


def test_where_one_process_leaves_out_a_device_each_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = json.dumps([FILTER])
    alone = {f"_j__s_filter_show_dev_{name}_ingress": text for name, text in (("p0", "[]"), ("p1", filters))}
    _answer(tmp_path, monkeypatch, _j_qdisc_show="[]", _j__s__batch__=filters, **alone)
    dump = dump_filters(["p0", "p1"])
    assert (dump.unread, [device for device, _ in dump.by_device]) == ((), ["p1"])


def test_devices_of_a_bond_share_a_block_that_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qdiscs = [{"kind": "ingress", "dev": name, "ingress_block": 22} for name in ("bond0", "p0", "p1")]
    _answer(tmp_path, monkeypatch, _j_qdisc_show=json.dumps(qdiscs), _j__s_filter_show_block_22=json.dumps([FILTER]))
    assert len(dump_filters(["p0", "p1"]).filters) == 1


def test_a_device_whose_json_is_invalid_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = '[{"options":{"handle":1,"actions":[{"order":1 police 0x1'
    _answer(tmp_path, monkeypatch, _j_qdisc_show="[]", _j__s_filter_show_dev_p0_ingress=broken)
    reason = "tc printed invalid JSON, as iproute2 before 5.14 does for filters with `police`"
    assert dump_filters(["p0"]).unread == (("p0", reason),)


def test_without_tc_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandMissing, match="iproute2"):
        dump_filters(["p0"])


def test_a_tc_without_json_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(tmp_path, monkeypatch, _j_qdisc_show="qdisc ingress ffff: dev p0")
    with pytest.raises(SwitchError, match=r"iproute2 4\.19"):
        dump_filters(["p0"])
