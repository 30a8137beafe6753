"""Configs of other load balancers, flows and tables: what each comes to, or why it is refused (golden/import_cases)."""

from __future__ import annotations

import pytest

from tests.judged import assert_recorded
from xenoovs.cli.config import reader_of
from xenoovs.errors import ParseError
from xenoovs.migrate.draft import DraftSwitch, render
from xenoovs.migrate.haproxy import parse_sections
from xenoovs.migrate.keepalived import parse_statements
from xenoovs.migrate.xenoflow import read_xenoflow


def listen(*lines: str, defaults: str = "") -> str:
    return "\n".join(("defaults", defaults, "listen web", "bind 192.0.2.1:80", *lines))


def bound(bind: str) -> str:
    return f"listen web\nbind {bind}\nserver a 192.0.2.2:80\n"


AGENT, TWO_BACKENDS = "agent-check agent-port 9707", "backend b\nserver b 192.0.2.2\nbackend c\nserver c 192.0.2.3\n"
HAPROXY = {
    "a quote that does not end": 'listen a\nserver "x\n',
    "a keyword outside of a section": "bind :80\n",
    "no-check ends a default check": listen("server a 192.0.2.2:80 no-check", defaults="default-server check"),
    **{
        f"the path of `option httpchk{option}`": listen(f"option httpchk{option}", "server a 192.0.2.2:80 check")
        for option in ("", " /alive", " HEAD /alive HTTP/1.0", " *")
    },
    **{
        f"bind {bind}": bound(bind)
        for bind in (":8000-8010", "*:80", "0.0.0.0:80", "ipv6@[2001:db8::1]:80", "2001:db8::1:80")
    },
    "agent-check of the first server is that of the service": listen(
        f"server a 192.0.2.2:80 {AGENT} agent-inter 5s", "server b 192.0.2.3:80 no-agent-check"
    ),
    "the interval of agent-check that haproxy has by default": listen(f"server a 192.0.2.2:80 {AGENT}"),
    "the timeout of agent-check is no longer than its interval; its address is named": listen(
        f"server a 192.0.2.2:80 {AGENT} agent-inter 200ms agent-send 'web\\n' agent-addr 192.0.2.9"
    ),
    "agent-check in the defaults holds for all servers": listen(
        "server a 192.0.2.2:80",
        "server b 192.0.2.3:80 agent-inter 9s",
        "server c 192.0.2.4:80 no-agent-check",
        defaults=f"default-server {AGENT} agent-inter 3s",
    ),
    "agent-check without a port": listen("server a 192.0.2.2:80 agent-check"),
    "agent-check of a later server": listen("server a 192.0.2.2:80", f"server b 192.0.2.3:80 {AGENT}"),
    **{
        f"{switch} has no argument, so the server is checked": listen(f"server a 192.0.2.2:80 {switch} check")
        for switch in ("send-proxy", "send-proxy-v2", "agent-check", "ssl-reuse")
    },
    **{
        f"bug: {bind} is no address, and became a service for all of TCP": bound(bind)
        for bind in ('"${LB_ADDR}:80"', "/run/web.sock", "fd@3", "quic4@192.0.2.1:80", "127.0.0.1:80")
    },
    "bug: VIPs had the ports of each other": "listen web\nbind 192.0.2.1:80\nbind 192.0.2.2:443\nserver a 192.0.2.3\n",
    **{
        f"bug: the port of {target} was part of the address": listen(f"server a {target} check")
        for target in ("2001:db8::12:6443", "[2001:db8::12]:6443", "ipv6@[2001:db8::12]:6443")
    },
    "bug: `from` was ignored, and the last defaults held for all": "defaults A\ndefault-server check inter 9s\n"
    "defaults B\nlisten w from A\nbind 192.0.2.1:80\nserver a 192.0.2.2\n",
    "bug: use_backend without a condition was left out": "frontend f\nbind 192.0.2.1:80\n"
    f"use_backend b\ndefault_backend c\n{TWO_BACKENDS}",
    "bug: the same after default_backend": "frontend f\nbind 192.0.2.1:80\n"
    f"default_backend c\nuse_backend b\n{TWO_BACKENDS}",
    "a check has the TLS of its server": listen("option httpchk", "server a 192.0.2.2:80 check ssl"),
    "a check with a port of its own has not": listen("option httpchk", "server a 192.0.2.2:80 check ssl port 81"),
}


def virtual(body: str, service: str = "lb_kind DR", *, address: str = "192.0.2.1") -> str:
    return f"virtual_server {address} 80 {{\n{service}\nreal_server 198.51.100.1 8080 {{\n{body}\n}}\n}}\n"


URL = "url {{\npath /{0}\nstatus_code {1}\nvirtualhost {0}.example\n}}\n"
MISC = "real_server {0} 80 {{\nMISC_CHECK {{\nmisc_path \"/bin/check {0} 'a b'\"\n}}\n}}\n"
KEEPALIVED = {
    **{
        f"broken on line {line}: {text[:6]!r}": text
        for text, line in (("a {\n", 2), ("}\n", 1), ("a 'b\n", 1), ("{\n", 1), ("a {\n{\n", 2), ("x {\n" * 40, 17))
    },
    "a program of MISC_CHECK is an exec probe": virtual(
        'MISC_CHECK {\n misc_path "/bin/check -p 80"\n misc_timeout 90\n}'
    ),
    "direct routing needs no remark on the servers": virtual(""),
    "a tunnel does": virtual("", "lb_kind TUN"),
    "NAT is nat where the way back is clear: not for the second VIP of a server, nor for IPv6": "".join(
        virtual("", "lb_kind NAT", address=address) for address in ("192.0.2.1", "192.0.2.2", "2001:db8::1")
    ),
    "a virtual server without real servers": "virtual_server 192.0.2.1 80 {\n}\n",
    "servers that begin as failed do so here": virtual("TCP_CHECK {\n}", "alpha"),
    "unless none is checked": virtual("", "alpha"),
    "bug: a virtual server without lb_kind is NAT": virtual("", ""),
    "bug: the second url gave the check its status and host": virtual(
        f"HTTP_GET {{\n{URL.format('a', 200)}{URL.format('b', 404)}\n}}"
    ),
    "bug: settings of the virtual server are the defaults of checks": virtual(
        "HTTP_GET {\nretry 1\n}",
        "retry 5\ndelay_before_retry 2\nconnect_timeout 3\ndelay_loop 8\nvirtualhost a.example\n",
    ),
    "bug: parameters were not substituted": "$NET=192.0.2\n$VIP=${NET}.1\n"
    "virtual_server $VIP 80 {\nreal_server ${NET}.2 80 {\n}\n}\n$RS= \\\n x\n",
    "bug: a sorry server that is a real server was there twice": virtual("", "sorry_server 198.51.100.1 8080"),
    "bug: the program of one server was asked about all of them": "virtual_server 192.0.2.1 80 {\n"
    f"{MISC.format('198.51.100.1')}{MISC.format('198.51.100.2')}}}\n",
    "bug: a check got a host and a port that no config takes": virtual(
        "HTTP_GET {\n virtualhost a/b\n connect_port 080\n}"
    ),
    "bug: a DNS check of the root became a probe that the config refuses": virtual("DNS_CHECK {\n}"),
    "bug: the same of the root by its name": virtual("DNS_CHECK {\nname .\n}"),
}

ONE, TWO = "mod_dl_dst:02:00:00:00:00:01,output:p1", "mod_dl_dst:02:00:00:00:00:02,output:p1"
OVERLAPPING = (f"priority=9,ip,nw_src=0.0.0.1/0.0.0.3,actions={TWO}", f"priority=1,ip,actions={ONE}")
OPTIONS = "idle_timeout=0,hard_timeout=0,table=0,check_overlap"
FLOWS = {
    "overlapping flows count by their priority": "\n".join(OVERLAPPING),
    "in any order": "\n".join(reversed(OVERLAPPING)),
    "a flow of NORMAL is for other traffic": f"ip,in_port=p0,actions={ONE}\npriority=0 actions=NORMAL",
    "flows of xenoovs are no services": f" cookie=0x786f010100000001, table=0, ip actions={ONE}",
    "no flows": "nothing\nof the kind\n",
    "bug: options of flows were taken for conditions": "\n".join(
        f"{OPTIONS},ip,nw_src=0.0.0.{bit}/0.0.0.1,actions={to}" for bit, to in enumerate((ONE, TWO))
    ),
    "bug: answers of servers became a service without clients": f"ip,nw_dst=192.0.2.1,actions={ONE}\n"
    "ip,nw_src=192.0.2.1,actions=output:p5",
    "bug: a service with all servers behind another port than the first one lost that port": (
        f"ip,nw_dst=192.0.2.1,actions={ONE}\nip,nw_dst=192.0.2.2,actions={TWO.replace('p1', 'p2')}"
    ),
}

XENOFLOW = {
    **{
        f"other JSON: {text!r}": text
        for text in ("", "[]", "{", '{"backends": 1}', '{"backends": [{"name": "a"}]}', '{"backends": [{}]}')
    },
    "the answer of the API": (
        '{"status": "ok", "version": "2", "backendNumber": 2, "backends": ['
        '{"name": "a", "mac_address": "02:00:00:00:00:01", "packetsProcessed": 5},'
        '{"name": "a", "mac_address": "02:00:00:00:00:02", "packetsProcessed": 6}]}'
    ),
    "bug: a document without backends was one service": '{"backends": []}',
}


def lb_list(*rows: str) -> str:
    columns = (("UUID", "LB", "PROTO", "VIP", "IPs"), *(("x", "lb", *row.split()) for row in rows))
    return "\n".join(f"{a:10}{b:9}{c:11}{d:19}{' '.join(rest)}" for a, b, c, d, *rest in columns) + "\n"


OVN = {
    **{
        f"bug: a row of another form stopped the others: {row}": lb_list(row, "tcp 192.0.2.9:80 198.51.100.1:80")
        for row in (
            "tcp 192.0.2.1 198.51.100.1   more",
            "tcp 192.0.2.300:80 198.51.100.1",
            "tcp 192.0.2.1:99999 198.51.100.1",
            "spx 192.0.2.1:80 198.51.100.1:80",
            "tcp 192.0.2.1:80 198.51.100.1:80,a",
        )
    },
    "bug: a load balancer without protocol is TCP": lb_list("(null) 192.0.2.1:80 198.51.100.1:80"),
    "a table without header": "x lb tcp 192.0.2.1:80 198.51.100.1:80",
    "IPv6 in brackets": lb_list("tcp [fd00::1]:80 [fd00::2]:80,[fd00::3]:8080"),
    "a server keeps its port where NAT can do it": lb_list(
        "tcp 192.0.2.1:80 198.51.100.1:80,198.51.100.1:8080,198.51.100.2:8080"
    ),
    "for IPv6 it cannot": lb_list("tcp [fd00::1]:80 [fd00::2]:80,[fd00::2]:8080"),
}


def imported(source: str, text: str) -> str:
    try:
        return render(reader_of(source)(text), source="it", switch=DraftSwitch())
    except ParseError as error:
        return f"refused: {error}\n"


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("haproxy", HAPROXY),
        ("keepalived", KEEPALIVED),
        ("flows", FLOWS),
        ("xenoflow", XENOFLOW),
        ("ovn", OVN),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_source_comes_to(source: str, texts: dict[str, str], *, update_golden: bool) -> None:
    shown = {title: imported(source, text) for title, text in texts.items()}
    assert_recorded(f"import_cases/{source}.txt", shown, update=update_golden)


def test_quotes_escapes_and_comments() -> None:
    (section,) = parse_sections(
        'listen a\n http-check send ver HTTP/1.1\\r\\nHost:\\x20b "\\t"\n'
        " server my\\ one \"192.0.2.1:80\" 'check # no' # comment\n"
    )
    check, server = section.lines
    assert check[3:] == ("HTTP/1.1\r\nHost: b", "\t")
    assert server == ("server", "my one", "192.0.2.1:80", "check # no")
    (one,) = parse_statements("misc_path \"/bin/check  'a' # b\" ! comment\n# all\n")
    assert one.head == ("misc_path", "/bin/check  'a' # b")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"backends": [' + "1" * 5_000 + "]}"], ids=["lists", "digits"])
def test_bug_json_that_python_cannot_read_ended_with_a_traceback(text: str) -> None:
    with pytest.raises(ParseError, match="the document is not of that form"):
        read_xenoflow(text)
