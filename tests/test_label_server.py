"""The protocol of `closefar label`: what a page asks for, in which order, and what it gets."""

from __future__ import annotations

import ssl
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from closefar.label import ANSWERS, TaskKind, Tls, plan_site
from closefar.label.security import Sessions
from label_client import PAIRS, Client, new_key, number_table, running

TRIPLETS = replace(PAIRS, kind=TaskKind.triplets, answers=ANSWERS[TaskKind.triplets])


def test_a_sitting(tmp_path: Path) -> None:
    """Setup, questions, answers, can't say, undo, and progress that follows."""
    with running(tmp_path, number_table(30), instructions="Look closely.") as server:
        client = server.client("owner")
        setup = client.get("/api/setup").json
        assert setup["name"] == "owner"
        assert setup["is_owner"]
        assert setup["judges"]
        assert setup["task"] == {
            "kind": "pairs",
            "question": "Are these two alike?",
            "instructions": "Look closely.",
            "answers": ["close", "far"],
        }
        assert client.get("/api/findings").json["status"] == "Learning starts after about 20 answers."
        found = client.post("/api/questions", {"n": 3}).json
        assert len(found["questions"]) == 3
        assert not found["exhausted"]
        assert found["progress"]["n"] == 0
        assert found["progress"]["last_answer"] is None
        first, second, _ = found["questions"]
        assert [len(each["things"]) for each in found["questions"]] == [2, 2, 2]
        assert {cell["name"] for cell in first["things"][0]["cells"]} == {"size", "weight"}

        key = new_key()
        assert client.answer(first["id"], "far", key) == {"key": key, "recorded": True, "reason": None}
        client.answer(second["id"], None)
        progress = client.get("/api/findings").json["progress"]
        assert (progress["n"], progress["seconds"]) == (2, 1.5)
        last = progress["last_answer"]
        assert last["question"] == second["id"]
        assert client.undo(second["id"], last["key"])["recorded"]
        again = client.post("/api/questions", {"n": 3}).json
        assert again["questions"][0]["id"] == second["id"]
        assert again["progress"]["n"] == 1
        assert again["progress"]["last_answer"] == {"key": key, "question": first["id"], "answer": "far"}


def test_events_of_one_request_are_recorded_in_order(tmp_path: Path) -> None:
    with running(tmp_path, number_table(30)) as server:
        client = server.client("owner")
        (question, *_) = client.questions(1)
        first, second = new_key(), new_key()
        events = [
            {"key": first, "kind": "answer", "question": question["id"], "answer": "far"},
            {"key": new_key(), "kind": "undo", "question": question["id"], "undoes": first},
            {"key": second, "kind": "answer", "question": question["id"], "answer": "close"},
        ]
        for _ in range(2):  # a page that heard nothing sends them once more
            found = client.post("/api/events", {"events": events}).json
            assert [each["recorded"] for each in found["receipts"]] == [True, True, True]
            assert found["progress"]["n"] == 1
            assert found["progress"]["last_answer"]["key"] == second
        assert server.count() == 3


def test_a_restarted_server_knows_its_sessions(tmp_path: Path) -> None:
    with running(tmp_path, number_table(30)) as server:
        client, port = server.client("owner"), server.port
        held = client.questions(3)
        client.answer(held[0]["id"], "far")
    with running(tmp_path, number_table(30), port=port):
        assert client.get("/api/setup").json["token"] == client.token
        assert client.questions(2) == held[1:]
        assert client.get("/api/findings").json["progress"]["n"] == 1


def test_a_table_that_is_judged_completely_says_so(tmp_path: Path) -> None:
    with running(tmp_path, number_table(3)) as server:
        client = server.client("owner")
        for question in client.questions(10):
            client.answer(question["id"], "far")
        found = client.post("/api/questions", {"n": 3}).json
        assert found["questions"] == []
        assert found["exhausted"]


@pytest.mark.parametrize(
    ("task", "n_things"),
    [(PAIRS, 2), (TRIPLETS, 3), (replace(PAIRS, kind=TaskKind.levels, answers=("1", "2", "3")), 2)],
    ids=["pairs", "triplets", "levels"],
)
def test_each_kind_is_judged(tmp_path: Path, task: Any, n_things: int) -> None:
    with running(tmp_path, number_table(20), task=task) as server:
        client = server.client("owner")
        (question, *_) = client.questions(1)
        assert len(question["things"]) == n_things
        assert client.answer(question["id"], task.answers[-1])["recorded"]


def test_findings_come_from_the_file_and_are_told_to_whom_they_concern(tmp_path: Path) -> None:
    body = {
        "status": "",
        "n_answers": 40,
        "quality": {"agreement": 0.8, "low": 0.7, "high": 0.9, "baseline": 0.5, "n": 20, "reading": ""},
        "doubtful": [{"question": 1, "annotator": "ana"}, {"question": 2, "annotator": "ben"}],
    }
    with running(tmp_path, number_table(20), annotators=("ana", "ben")) as server:
        server.server.store.add_findings({**body, "n_answers": 20}, 20, [], "information")
        server.server.store.add_findings(body, 40, [], "information")
    with running(tmp_path, number_table(20), annotators=("ana", "ben")) as server:
        found = server.client("owner").get("/api/findings").json
        assert found["quality"] == body["quality"]
        assert [point["n"] for point in found["curve"]] == [20, 40]
        hers = server.client("ana").get("/api/findings").json
        assert [each["question"] for each in hers["doubtful"]] == [1]
        assert "quality" not in hers


def test_a_doubtful_answer_can_be_given_once_more(tmp_path: Path) -> None:
    with running(tmp_path, number_table(20)) as server:
        client = server.client("owner")
        (question, *_) = client.questions(1)
        client.answer(question["id"], "far")
        assert client.post("/api/review", {"question": question["id"]}).status == 404
        server.publish(doubtful=[{"question": question["id"], "annotator": "owner"}])
        found = client.post("/api/review", {"question": question["id"]})
        assert found.json["question"] == {**question, "purpose": "review"}
        assert client.answer(question["id"], "close")["recorded"]
        assert client.get("/api/findings").json["progress"]["n"] == 1
        assert not client.answer(question["id"], "far")["recorded"]  # a review is one answer


def test_fits_follow_answers_and_choose_questions(tmp_path: Path) -> None:
    with running(tmp_path, number_table(40), fits=True, random_share=0.0) as server:
        client = server.client("owner")
        for _ in range(30):
            (question, *_) = client.questions(1)
            one, other = (int(thing["id"][1:]) for thing in question["things"])
            client.answer(question["id"], "far" if abs(one - other) > 13 else "close")
        deadline = time.monotonic() + 120
        while not client.get("/api/findings").json.get("quality") and time.monotonic() < deadline:
            time.sleep(0.2)
        found = client.get("/api/findings").json
        assert found["quality"]["n"] > 0
        assert found["curve"]
        for question in client.questions(3):
            client.answer(question["id"], "far")
        chosen = server.server.store.run(
            lambda each: each.execute("SELECT DISTINCT chosen FROM questions JOIN handed ON question = id").fetchall()
        )
        assert ("information",) in chosen


def test_pages_name_assets_that_are_there(tmp_path: Path) -> None:
    with running(tmp_path, number_table(5)) as server:
        client = server.client()
        page = client.get("/").body.decode()
        names = [part.partition('"')[0] for part in page.split('"/static/')[1:]]
        assert names
        assert {client.get(f"/static/{name}").status for name in names} == {200}


def test_a_full_disk_is_said_and_the_server_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def limit(connection: Any, more: int) -> None:
        (n_pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {n_pages + more}").fetchone()

    with running(tmp_path, number_table(200)) as server:
        client = server.client("owner")
        held = client.questions(1)
        server.server.store.run(lambda connection: limit(connection, 0))
        (question, *_) = held
        events = [{"key": new_key(), "kind": "answer", "question": question["id"], "answer": "far"}]
        while (status := client.post("/api/events", {"events": events[-1:]}).status) == 200 and len(events) < 500:
            is_undo, before = events[-1]["kind"] == "answer", events[-1]["key"]
            again = {"kind": "undo", "undoes": before} if is_undo else {"kind": "answer", "answer": "far"}
            events.append({"key": new_key(), "question": question["id"], **again})
        assert status == 503
        assert client.get("/api/findings").status == 200
        assert "disk is full" in capfd.readouterr().err
        server.server.store.run(lambda connection: limit(connection, 1000))
        assert client.post("/api/events", {"events": [events[-1]]}).json["receipts"][0]["recorded"]


def _make_certificate(folder: Path) -> Tls:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return Tls(certificate, key)


@pytest.mark.skipif(which("openssl") is None, reason="needs openssl, which makes a certificate")
def test_tls(tmp_path: Path) -> None:
    tls = _make_certificate(tmp_path)
    site = plan_site("0.0.0.0", tls=tls)
    with running(tmp_path, number_table(20), site=site) as server:
        context = ssl.create_default_context(cafile=str(tls.certificate))
        client = Client(server.port, context)
        entered = client.post("/enter", {"secret": server.secret("owner")})
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith("__Host-closefar-")
        assert "; Secure" in cookie
        client.enter(server.secret("owner"))
        assert client.answer(client.questions(1)[0]["id"], "far")["recorded"]
        addresses = server.server.addresses()
        assert addresses[0].address.startswith("https://")
        assert server.server._server.config.ssl.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert b" 200 " not in server.raw(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    for name in ("certificate.pem", "key.pem"):
        (tmp_path / name).write_text("nothing")
    site = plan_site("0.0.0.0", tls=Tls(tmp_path / "certificate.pem", tmp_path / "key.pem"))
    with (
        pytest.raises(ValueError, match="must be a certificate and its key"),
        running(tmp_path, number_table(20), site=site),
    ):
        pass
    assert not (tmp_path / "judgements.sqlite").exists()


def test_behind_a_proxy_the_typed_address_counts(tmp_path: Path) -> None:
    site = plan_site("127.0.0.1", behind_proxy=True, address="https://Label.example.org/")
    with running(tmp_path, number_table(20), site=site) as server:
        (owner,) = server.server.addresses()
        assert owner.address.startswith("https://label.example.org/#")
        client = Client(server.port, origin="https://label.example.org")
        named = {"Host": "label.example.org"}
        found = client.request("POST", "/enter", {"secret": server.secret("owner")}, named)
        assert found.status == 204
        assert "; Secure" in found.headers["set-cookie"]
        evil = client.request("POST", "/enter", {"secret": server.secret("owner")}, {"Host": "evil.example"})
        assert evil.status == 421
        foreign = {**named, "Origin": "https://evil.example"}
        assert client.request("POST", "/enter", {"secret": server.secret("owner")}, foreign).status == 403


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", "http://127.0.0.1:8"), ("localhost", "http://localhost:8"), ("::1", "http://[::1]:8")],
    ids=["ipv4", "name", "ipv6"],
)
def test_addresses_of_this_machine(host: str, expected: str) -> None:
    site = plan_site(host)
    assert site.base(8) == expected
    assert expected in site.origins(8)
    assert expected.removeprefix("http://") in site.hosts(8)


def test_each_file_has_its_own_port_and_cookie(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        with running(folder, number_table(5)) as server:
            sessions = server.server.sessions
            found.append((sessions.file_id, sessions.number_for("port", 12_000), server.client("owner").cookie))
    assert len({each for pair in zip(*found, strict=True) for each in pair}) >= 5


def test_an_annotator_never_becomes_the_owner() -> None:
    """Not even alone, after others were taken off the list: the secret is the same as before."""
    both, alone = (Sessions(b"key", names) for names in (("ana", "ben"), ("ana",)))
    secret = both.secret_of(both.people["ana"])
    person = alone.person_with(secret, now=0.0)
    assert person is not None
    assert person.judges
    assert not person.is_owner
    assert not alone.owner.judges
