"""Records: what passes a tape and comes back, what never gets into a file, and files that are no records."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.command_line import CommandLine
from tests.judged import assert_recorded
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, FileUnusable
from xenoovs.evidence import archive
from xenoovs.evidence.archive import Recorder, Replay, read_record, without_secrets, write_record
from xenoovs.evidence.take import Anonymizer
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.process import run, try_run
from xenoovs.switch.tape import Answer, answered, list_files, passing_through, read_file

HERE = Endpoint("unix:/run/x/db.sock", Path("/run/x"))
SECRETS = ("hunter2", "0xdeadbeefcafe", "MIIEvQIBADAN")


def _recorded(file: Path, ask: Callable[[], object], **limits: Any) -> Recorder:
    recorder = Recorder(**{"limit_s": 60.0, **limits})
    with passing_through(recorder):
        ask()
    write_record(file, recorder, HERE)
    return recorder


def test_answers_come_back_in_their_order_and_the_last_one_again(tmp_path: Path) -> None:
    counter, file = tmp_path / "counter", tmp_path / "host.record"

    def count() -> None:
        for text in ("1\n", "1\n", "2\n"):
            counter.write_text(text)
            assert run(["cat", str(counter)]).stdout == text
            assert read_file(counter) == text
        assert list_files(tmp_path, "count*") == ["counter"]

    _recorded(file, count)
    counter.unlink()
    assert read_record(file).endpoint == HERE
    with passing_through(Replay(read_record(file))):
        assert [run(["cat", str(counter)]).stdout for _ in range(4)] == ["1\n", "1\n", "2\n", "2\n"]
        assert [read_file(counter) for _ in range(4)] == ["1\n", "1\n", "2\n", "2\n"]
        assert list_files(tmp_path, "count*") == ["counter"]
    with tarfile.open(file) as unpacked:
        assert len(unpacked.getnames()) == 6, "equal answers to a question are one file"


def test_failures_come_back_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "host.record"

    def fail() -> None:
        with pytest.raises(CommandFailed):
            run(["sh", "-c", "echo no >&2; exit 3"])
        with pytest.raises(CommandMissing):
            run(["xenoovs-is-no-program"])
        with pytest.raises(CommandTimeout):
            run(["sleep", "60"], timeout_s=0.01)
        assert read_file(tmp_path / "nothing") is None

    _recorded(file, fail)
    with passing_through(Replay(read_record(file))):
        fail()
        with pytest.raises(CommandFailed, match="`ip link` failed with status 1: the record has no answer to it"):
            run(["ip", "link"])
        assert read_file(Path("/proc/self/stat")) is None


@pytest.mark.parametrize(
    "text",
    [
        "options:psk=hunter2, remote_ip=192.0.2.1",
        'options: {psk="hunter2", type=x}',
        '"options": {"ipsec_psk": "hunter2"}',
        '{"password": "hunter2\\" hunter2", "a": 1}',
        "ovn-remote=tcp://admin:hunter2@192.0.2.1:6641",
        "api_token: hunter2",
        "aead rfc4106(gcm(aes)) 0xdeadbeefcafe 128",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADAN\n",
    ],
)
def test_secrets_are_hidden_in_text_and_questions(text: str, tmp_path: Path) -> None:
    assert "(hidden)" in without_secrets(text)
    assert not any(secret in without_secrets(text) for secret in SECRETS)
    _recorded(tmp_path / "host.record", lambda: answered(("show", text), lambda: Answer(text, 1, text)))
    whole = gzip.decompress((tmp_path / "host.record").read_bytes()).decode()
    assert "(hidden)" in whole
    assert not any(secret in whole for secret in SECRETS)


def test_a_hidden_secret_leaves_json_valid_and_other_text_alone() -> None:
    assert json.loads(without_secrets('{"psk": "a b", "private_key": "/etc/key.pem"}')) == {
        "psk": "(hidden)",
        "private_key": "/etc/key.pem",
    }
    flow = "cookie=0x7, nw_src=0.0.0.1/0.0.0.3 actions=mod_dl_dst:02:00:5e:10:00:02,output:p1"
    assert without_secrets(flow) == flow


def test_what_is_too_long_or_too_late_is_cut_and_said(tmp_path: Path) -> None:
    file = tmp_path / "host.record"
    cut = _recorded(file, lambda: run(["seq", "9"]), max_bytes=8).cut
    assert cut == ["seq 9: 10 of 18 characters left out"]
    assert [each.answer.text for each in read_record(file).found if each.question == ("seq", "9")] == ["1\n2\n3\n4"]
    assert read_record(file).manifest["cut"] == cut
    (late,) = _recorded(file, lambda: try_run(["seq", "9"]), limit_s=-1.0).cut
    assert late.startswith("seq 9: not asked")


def test_a_full_disk_and_an_interrupt_leave_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "host.record"
    file.write_text("before")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def refuse(_descriptor: int, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("os.fsync", refuse)
        with pytest.raises(type(error)) as refused:
            write_record(file, Recorder(limit_s=1.0), HERE)
        assert isinstance(error, KeyboardInterrupt) or getattr(refused.value, "filename", "") == str(file)
        assert [path.name for path in tmp_path.iterdir()] == ["host.record"]
        assert file.read_text() == "before"
    monkeypatch.undo()
    write_record(file, Recorder(limit_s=1.0), HERE)
    assert file.stat().st_mode & 0o777 == 0o600


def test_who_judges_a_record_that_was_cut_hears_it(tmp_path: Path, xenoovs: CommandLine) -> None:
    """Bug: what a limit left out stood in the manifest alone, and half a dump was judged as if it were whole."""
    file = tmp_path / "host.record"
    write_record(file, Recorder(60.0, cut=["ovs-appctl dpctl/dump-flows -m: 7 of 9 characters left out\x1b[2J"]), HERE)
    said = xenoovs("verify-offload", "--bridge", "br0", "--record", file).err.splitlines()[0]
    left_out = "ovs-appctl dpctl/dump-flows -m: 7 of 9 characters left out"
    assert said == f"note: {file} is not whole: {left_out}\\x1b[2J"


@pytest.mark.parametrize("piece", ["a", ":", "0:", "a.", "psk", "psk =", "a-", "://", "://a:", "[", '"psk": "'])
def test_a_word_without_end_is_read_once(piece: str) -> None:
    """Bug: a dump of 200,000 megaflows took minutes, a word of a million letters hours."""
    word = piece * 100_000
    assert without_secrets(word).startswith(piece[:1])
    assert Anonymizer()(word).startswith(piece[:1])


MANIFEST = {
    **{"xenoovs_record": 1, "db": "unix:/x", "rundir": None},
    **{"begun": "2026-01-01T00:00:00Z", "seconds": 1, "cut": []},
}


def _packed(members: Mapping[str, str | tarfile.TarInfo]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, content in members.items():
            if isinstance(content, str):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                made.addfile(member, io.BytesIO(content.encode()))
            else:
                made.addfile(content)
    return buffer.getvalue()


def _link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def _with(**rows: object) -> str:
    return json.dumps({**MANIFEST, "answers": [], **rows})


def _answered(question: list[object], file: str | None) -> bytes:
    return _packed({"manifest.json": _with(answers=[{"question": question, "file": file, "at": 1}])})


HOSTILE = {
    "text": b"ufid:...",
    "damaged gzip": _packed({"manifest.json": _with()})[:-20],
    "no tar": gzip.compress(b"x" * 5000),
    "path": _packed({"../../etc/cron.d/x": ""}),
    "terminal": _packed({"\x1b[2J": ""}),
    "link": _packed({"a": _link("manifest.json", "/etc/shadow")}),
    "bomb": gzip.compress(bytes(1 << 21)),
    "no manifest": _packed({"answers/0001-x.txt": ""}),
    "no JSON": _packed({"manifest.json": "{"}),
    "deep JSON": _packed({"manifest.json": "[" * 100_000}),
    "a list": _packed({"manifest.json": "[1]"}),
    "newer": _packed({"manifest.json": '{"xenoovs_record": 2}'}),
    "no answers": _packed({"manifest.json": json.dumps(MANIFEST)}),
    "no file": _answered(["a"], "answers/0001-a.txt"),
    "a number": _answered([1], None),
    "no database": _packed({"manifest.json": _with(db=7)}),
}


def test_what_is_no_record_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool
) -> None:
    monkeypatch.setattr(archive, "_MOST_BYTES", 1 << 19)
    monkeypatch.setattr(archive, "_MOST_ANSWERS", 1000)
    monkeypatch.chdir(tmp_path)
    shown = {}
    for title, data in HOSTILE.items():
        Path("x.record").write_bytes(data)
        with pytest.raises(FileUnusable) as refused:
            read_record(Path("x.record"))
        shown[title] = str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.record"]
    assert_recorded("parsed/unusable_records.txt", shown, update=update_golden)


def test_a_record_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable, match="it is no file"):
        read_record(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "nothing")


KEYS = st.binary(min_size=32, max_size=32)
V4, V6 = st.integers(1 << 24, (127 << 24) - 1), st.integers(1 << 112, (0xFF00 << 112) - 1)
LOW_MASKS = st.integers(0, (1 << 16) - 1)
PREFIXES = st.integers(0, 32).map(lambda length: (1 << 32) - (1 << (32 - length)))
MASKS = LOW_MASKS | PREFIXES | LOW_MASKS.map(lambda low: 0xFFFF << 16 | low)


def _v4(text: str) -> list[int]:
    return [int(IPv4Address(found)) for found in re.findall(r"[0-9.]{7,}", text)]


@given(KEYS, V4, V4, MASKS)
def test_a_mask_matches_the_same_addresses_as_before(key: bytes, client: int, value: int, mask: int) -> None:
    flow = f"nw_src={IPv4Address(value & mask)}/{IPv4Address(mask)} from {IPv4Address(client)}"
    mapped_value, mapped_mask, mapped_client = _v4(Anonymizer(key)(flow))
    assert mapped_mask == mask
    assert mapped_value & mask == mapped_value
    assert (mapped_client & mask == mapped_value) == (client & mask == value & mask)


@given(KEYS, V4, V4)
def test_addresses_stay_different_and_keep_their_common_prefix(key: bytes, one: int, other: int) -> None:
    first, second = _v4(Anonymizer(key)(f"{IPv4Address(one)} {IPv4Address(other)}"))
    assert (first ^ second).bit_length() == (one ^ other).bit_length()
    assert first >> 24 == one >> 24


@given(KEYS, V6, st.integers(0, 128))
def test_ipv6_too(key: bytes, value: int, length: int) -> None:
    anonymous, network = Anonymizer(key), value >> (128 - length) << (128 - length)
    address = int(IPv6Address(anonymous(f"x {IPv6Address(value)}").split()[1]))
    mapped, _, mask = anonymous(f"x {IPv6Address(network)}/{length}").split()[1].partition("/")
    assert mask == str(length)
    assert int(IPv6Address(mapped)) == address >> (128 - length) << (128 - length)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0/0 0.0.0.0/0.0.0.0 255.255.255.255 127.0.0.1 224.0.0.251 :: ::/0 ::1 ff02::fb",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 01:00:5e:00:00:fb 33:33:00:00:00:01 01:80:c2:00:00:00",
        "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 eth(src=00:00:00:00:00:00/00:00:00:00:00:00)",
        "2026-11-27T00:47:33.123Z|00012|bridge|INFO pci/0000:03:00.0 firmware 22.999.1.2 kernel 6.1.0-13 netdev::x",
        "ufid:43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32 cookie=0x786f010000000000",
        "load:0x7cfe9012->NXM_NX_REG0[] load:0x7->NXM_OF_ETH_DST[0..7]",
    ],
)
def test_what_has_a_meaning_of_its_own_stays(text: str) -> None:
    assert Anonymizer(bytes(32))(text) == text


@pytest.mark.parametrize(
    ("before", "address", "after"),
    [
        ("tcp:", "10.1.2.3", ":6640"),
        ("mod_dl_dst:", "02:00:5e:10:00:02", ",output:p1"),
        ("set_field:", "02:00:5e:10:00:02", "->eth_dst"),
        ("set_field:", "2001:db8::1", "->ipv6_src"),
        ("tcp:[", "2001:db8::1", "]:6640"),
        ('"', "fe80::5e:10ff:fe00:2", '"'),
        ("", "33:33:ff:10:00:02", ""),
        ("route to ", "192.0.2.1", "."),
        ('"datapath_id": "', "0000c6467a3332b5", '"'),
        # Bug: numbers that flows write, as those of ARP's answers, stayed.
        ("actions=load:", "0x7cfe90123456", "->NXM_NX_ARP_SHA[]"),
        ("load:", "0xc000024d", "->NXM_OF_ARP_SPA[]"),
        ("load:", "0x20010db800770000", "->NXM_NX_IPV6_DST[64..127]"),
        ("load:", "0x77", "->NXM_NX_IPV6_DST[0..63]"),
        ('"hostname": "', "dpu-1.example", '"'),
    ],
)
def test_an_address_is_found_wherever_it_is(before: str, address: str, after: str) -> None:
    mapped = Anonymizer(bytes(32))(f"{before}{address}{after}")
    assert address not in mapped
    assert mapped.startswith(before)
    assert mapped.endswith(after)


@pytest.mark.parametrize("address", ["2001:db8::1", "2001:db8:77::", "fd00::5e:10ff:fe00:2"])
def test_halves_that_a_flow_writes_are_those_of_the_address(address: str) -> None:
    """Bug: a half of 1, as in 2001:db8::1, stayed."""
    anonymize, number = Anonymizer(bytes(32)), int(IPv6Address(address))
    flow = f"load:{number >> 64:#x}->NXM_NX_IPV6_DST[64..127],load:{number & (1 << 64) - 1:#x}->NXM_NX_IPV6_DST[0..63]"
    high, low = (int(half, 16) for half in re.findall("0x[0-9a-f]+", anonymize(flow)))
    assert high << 64 | low == int(IPv6Address(anonymize(address)))


def test_another_key_gives_another_address() -> None:
    assert len({Anonymizer()("192.0.2.77") for _ in range(8)}) > 1
