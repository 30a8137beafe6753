"""What backend machines of a lab answer to health checks."""

from __future__ import annotations

import dns.message
import dns.rcode
import pytest

from xenoovs.lab.responder import CheckAnswer, Job, dns_answer, http_answer, parse_job, render_job

CHECKS = (CheckAnswer("http", 80, "/ready?x=1", 204, "fine"), CheckAnswer("http", 80))
JOB = Job("b1", ("one", "two"), (("udp", 7), ("tcp", 80)), "/log", ("10.0.0.1", "fd00::1"), CHECKS, 2.0, "/pem")


def test_a_job_can_be_written_down_and_read_back() -> None:
    assert parse_job(render_job(JOB)) == JOB


@pytest.mark.parametrize("name", ["example.org", ".", "a." * 60 + "org"])
def test_a_dns_query_gets_an_address(name: str) -> None:
    query = dns.message.make_query(name, "A")
    answer = dns.message.from_wire(dns_answer(query.to_wire()))
    assert query.is_response(answer)
    assert answer.rcode() == dns.rcode.NOERROR
    assert [str(record) for record in answer.answer[0]] == ["192.0.2.1"]


@pytest.mark.parametrize("query", [b"", b"\0", b"\1\2\3\4\5\6\7\10\11\12\13\14\377", bytes(11)])
def test_what_is_no_query_does_no_harm(query: bytes) -> None:
    assert dns_answer(query)


@pytest.mark.parametrize(
    ("path", "head", "body"),
    [
        ("/ready?x=1", "HTTP/1.1 204 lab", "b1 one/two\nfine"),
        ("/", "HTTP/1.1 200 lab", "b1 one/two\n"),
        ("/other", "HTTP/1.1 404 lab", "no health check asks for this path\n"),
    ],
)
def test_http_answers_are_those_of_the_path(path: str, head: str, body: str) -> None:
    answer = http_answer(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), CHECKS, JOB.greeting).decode()
    assert answer.startswith(f"{head}\r\n")
    assert f"Content-Length: {len(body)}\r\n" in answer
    assert answer.endswith(f"\r\n\r\n{body}")


def test_a_request_that_is_no_http_gets_an_answer_too() -> None:
    assert b"404" in http_answer(b"\r\n\r\n", CHECKS, JOB.greeting)
