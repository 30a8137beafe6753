"""The table of `make demo-fleet` counts the packets in the file of its clients."""

from __future__ import annotations

from pathlib import Path

from scripts.demo_fleet.network import Flow
from scripts.demo_fleet.tally import Record, clients_by_server, homes, least_moves, render, row_of

A1, A2, B1 = Flow("198.18.0.1", 1), Flow("198.18.0.1", 2), Flow("198.18.0.2", 1)


def test_a_packet_without_an_answer_is_lost_and_late_answers_count(tmp_path: Path) -> None:
    file = tmp_path / "clients.log"
    file.write_text("s 0 10.0 198.18.0.1 1\ns 1 10.5 198.18.0.1 2\ns 2 11.5 198.18.0.2 1\na 2 web2\n")
    record = Record(file)
    record.update()
    with file.open("a") as more:
        more.write("a 0 web1\ns 3 12.0 198.18.0.1 1\na 3 we")
    record.update()
    assert [packet.server for packet in record.packets] == ["web1", None, "web2", None]
    assert [packet.flow for packet in record.between(10.5, 12.0)] == [A2, B1]
    row = row_of("x", record.packets, before={}, after={}, rerouted=0, had_to=0)
    assert (row.sent, row.lost, row.lasted_s) == (4, 2, 1.5)


def test_a_client_moves_if_its_servers_change_and_is_torn_if_it_has_two(tmp_path: Path) -> None:
    before, after = {A1: "web1", A2: "web1", B1: "web2"}, {A1: "web1", A2: "web3", B1: "web2"}
    row = row_of("x", [], before=before, after=after, rerouted=0, had_to=0)
    assert (row.moved, row.torn) == (1, 1)


def test_a_client_that_returns_to_a_server_goes_to_and_fro(tmp_path: Path) -> None:
    file = tmp_path / "clients.log"
    sent = "".join(f"s {number} {number}.0 198.18.0.1 1\n" for number in range(3))
    record = Record(file)
    for servers, flapped in (("112", 0), ("121", 1)):
        file.write_text(sent + "".join(f"a {number} web{server}\n" for number, server in enumerate(servers)))
        record = Record(file)
        record.update()
        assert row_of("x", record.packets, before={}, after={}, rerouted=0, had_to=0).flapped == flapped
    assert clients_by_server(homes(record.packets)) == {"web1": 1}


def test_the_least_that_has_to_move_is_what_servers_have_too_much() -> None:
    had = clients_by_server({Flow(f"198.18.0.{number}", 1): "web1" if number < 32 else "web2" for number in range(64)})
    assert least_moves(had, {"web1": 1, "web2": 1}) == 0
    assert least_moves(had, {"web1": 1, "web2": 1, "web3": 2}) == 32
    assert least_moves(had, {"web1": 1}) == 32


def test_the_table_fits_a_terminal() -> None:
    row = row_of("web4 joins, canary first", [], before={}, after={}, rerouted=192, had_to=64)
    assert {len(line) for line in render([row]).splitlines()} == {79}
