"""Attacks on `closefar label`: each must fail, and the server must serve an honest client afterwards."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from closefar.label import check_names
from closefar.label.security import ClientLimits, Sessions
from closefar.label.server import find_picture
from label_client import PNG, Client, Running, new_key, number_table, receive, running

HONEST = tuple(f"honest{number}" for number in range(10))
MARKUP = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
SQL = "'; DROP TABLE events; --"

OUTSIDE = (
    b"\x89PNG\r\n\x1a\nTOPSECRET"  # a picture that lies outside of the folder, so that only the path gives it away
)

# What is in the column of pictures, one point each.
CELLS = {
    "parent": "../outside.png",
    "absolute": "{outside}",
    "parent-in-the-middle": "good.png/../../outside.png",
    "down-and-up": "inner/../../outside.png",
    "link-out": "link.png",
    "folder-link-out": "linked/outside.png",
    "link-to-itself": "loop.png",
    "device": "device.png",
    "fifo": "fifo.png",
    "folder": "folder.png",
    "page-named-png": "page.png",
    "page": "page.html",
    "svg": "drawing.svg",
    "svg-named-png": "drawing.png",
    "too-large": "large.png",
    "encoded": "%2e%2e/outside.png",
    "backslash": "..\\outside.png",
    "file-url": "file://{outside}",
    "other-host": "//evil.example/outside.png",
    "the-table": "points.csv",
    "the-judgements": "judgements.sqlite",
    "the-key": "judgements.sqlite-key",
    "proc": "/proc/self/environ",
    "long-name": "x" * 5000 + ".png",
    "markup": IMAGE + ".png",
}
TEXTS = {
    "javascript": "javascript:alert(1)",
    "mixed-case": "JaVaScRiPt:alert(1)",
    "spaced": " javascript:alert(1)",
    "data": "data:text/html,<script>alert(1)</script>",
    "vbscript": "vbscript:msgbox(1)",
    "tab-in-scheme": "java\tscript:alert(1)",
    "no-host": "https:alert(1)",
}


def _table(outside: Path) -> str:
    rows = [("good", "good.png", MARKUP)]
    rows += [(f"c-{name}", cell.format(outside=outside), IMAGE) for name, cell in CELLS.items()]
    rows += [(f"t-{name}", "good.png", text) for name, text in TEXTS.items()]
    rows += [(f"{kind}-{number}", "good.png", kind) for number, kind in enumerate((MARKUP, SQL, IMAGE, "{{7*7}}"))]
    rows += [(f"P{number}", "good.png", "plain") for number in range(60)]
    names = ["id", "size", IMAGE, "photo", "notes"]
    lines = [names, *([point, str(row), str(row % 7), *shown] for row, (point, *shown) in enumerate(rows))]
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in line) + "\n" for line in lines)


def _make_files(folder: Path, outside: Path) -> None:
    outside.write_bytes(OUTSIDE)
    (folder / "good.png").write_bytes(PNG)
    (folder / "link.png").symlink_to(outside)
    (folder / "linked").symlink_to(outside.parent)
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "device.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo.png")
    (folder / "folder.png").mkdir()
    (folder / "inner").mkdir()
    (folder / "page.png").write_text(f"<html>{MARKUP}</html>")
    (folder / "page.html").write_text(f"<html>{MARKUP}</html>")
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg">{MARKUP}</svg>'
    (folder / "drawing.svg").write_text(drawing)
    (folder / "drawing.png").write_text(drawing)
    (folder / (IMAGE + ".png").replace("/", "_")).write_bytes(PNG)
    with open(folder / "large.png", "wb") as file:
        file.write(PNG)
        file.truncate(33 * 2**20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    top = tmp_path_factory.mktemp("attacked")
    folder = top / "table"
    folder.mkdir()
    _make_files(folder, top / "outside.png")
    with running(
        folder,
        _table(top / "outside.png"),
        show=("photo", "notes"),
        annotators=("ana", "ben", *HONEST),
        question=f"Alike? {MARKUP}",
        instructions=f"Look. {IMAGE} {MARKUP}",
        random_share=1.0,
        shared_share=0.0,
    ) as found:
        yield found


@pytest.fixture(scope="module")
def honest(server: Running) -> Iterator[Client]:
    """Honest clients in turn, none of whom asks too often however quick the tests are."""
    return itertools.cycle([server.client(name) for name in HONEST])


@pytest.fixture(scope="module")
def ana(server: Running) -> Client:
    return server.client("ana")


@pytest.fixture(scope="module")
def owner(server: Running) -> Client:
    return server.client("owner")


@pytest.fixture(scope="module")
def ben(server: Running) -> Client:
    return server.client("ben")


@pytest.fixture(autouse=True)
def _still_serves(request: pytest.FixtureRequest) -> Iterator[None]:
    clients = request.getfixturevalue("honest") if "server" in request.fixturenames else None
    yield
    if clients is not None:
        _check_served(next(clients))


def _check_served(client: Client) -> None:
    """An honest client is asked something, and its answer is recorded."""
    (question, *_) = client.questions(1)
    assert client.answer(question["id"], "far")["recorded"]


def _row(server: Running, point: str) -> int:
    ids = [
        str(each) for each in server.server.store.run(lambda c: [id for (id,) in c.execute("SELECT id FROM points")])
    ]
    return ids.index(point)


# ---- paths

PATHS = {
    "static-parent": "/static/../../../points.csv",
    "static-encoded": "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "static-encoded-slash": "/static/..%2f..%2f..%2fetc%2fpasswd",
    "static-double-encoded": "/static/%252e%252e%252f%252e%252e%252fetc%252fpasswd",
    "static-absolute": "/static//etc/passwd",
    "static-backslash": "/static/..%5c..%5cpoints.csv",
    "static-null": "/static/label.js%00.html",
    "static-template": "/static/label.html.jinja",
    "static-overlong": "/static/%c0%ae%c0%ae/%c0%ae%c0%ae/etc/passwd",
    "static-folder": "/static/",
    "files-parent": "/files/0/../../judgements.sqlite-key",
    "files-encoded": "/files/0/%2e%2e%2fjudgements.sqlite-key",
    "files-double-encoded": "/files/0/%252e%252e%252foutside.png",
    "files-absolute": "/files/0//etc/passwd",
    "files-beyond-the-column": "/files/0/photo/../../../../etc/passwd",
    "files-null": "/files/0/photo%00",
    "files-feature-column": "/files/0/size",
    "files-id-column": "/files/0/id",
    "files-unknown-column": "/files/0/__class__",
    "files-negative-row": "/files/-1/photo",
    "files-row-too-large": "/files/999999999999999999999999/photo",
    "files-row-of-other-digits": "/files/%D9%A1/photo",
    "files-row-in-python": "/files/1_0/photo",
    "thing-negative-row": "/api/thing/-1",
    "dot-git": "/.git/config",
    "the-file-itself": "/judgements.sqlite",
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_no_path_leads_out(server: Running, path: str) -> None:
    found = server.client("owner").get(path)
    assert found.status in (400, 404)
    assert found.headers["content-type"] == "application/json"
    assert b"root:" not in found.body
    assert b"PNG" not in found.body


@pytest.mark.parametrize("name", CELLS)
def test_no_cell_leads_out(server: Running, owner: Client, name: str) -> None:
    found = owner.get(f"/files/{_row(server, f'c-{name}')}/photo")
    if name == "markup" and found.status == 200:  # a picture of the folder that has markup in its name
        assert found.headers["content-type"] == "image/png"
        return
    assert found.status == 404
    assert b"TOPSECRET" not in found.body


def test_a_null_byte_in_a_cell_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(PNG)
    assert find_picture(tmp_path, "good.png") is not None
    assert find_picture(tmp_path, "good.png\0") is None
    assert find_picture(tmp_path, "\0/etc/passwd.png") is None


def test_pictures_are_of_points_that_one_was_asked_about(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(PNG)
    table = "id,size,photo\n" + "".join(f"P{row},{row},good.png\n" for row in range(30))
    with running(tmp_path, table, show=("photo",), annotators=("ana", "ben")) as server:
        ana, ben, owner = (server.client(name) for name in ("ana", "ben", "owner"))
        (question,) = ana.questions(1)
        sources = [cell["src"] for thing in question["things"] for cell in thing["cells"] if cell["kind"] == "image"]
        assert len(sources) == 2
        assert [ana.get(each).status for each in sources] == [200, 200]
        assert [ben.get(each).status for each in sources] == [404, 404]
        every = [f"/files/{row}/photo" for row in range(30)]
        assert [each for each in every if ana.get(each).status == 200] == sorted(sources, key=every.index)
        assert {owner.get(each).status for each in every} == {200}


def test_pictures_are_nothing_but_pictures(server: Running, owner: Client) -> None:
    found = owner.get("/files/0/photo")
    assert found.status == 200
    assert found.body == PNG
    assert found.headers["content-type"] == "image/png"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"


# ---- scripts in what is shown


def _thing(server: Running, point: str) -> dict[str, Any]:
    owner = server.client("owner")
    found = owner.get(f"/api/thing/{_row(server, point)}")
    assert found.status == 200
    assert found.headers["content-type"] == "application/json"
    assert found.headers["x-content-type-options"] == "nosniff"
    return found.json


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_run_are_no_links(server: Running, name: str) -> None:
    (cell,) = [each for each in _thing(server, f"t-{name}")["cells"] if each["name"] == "notes"]
    assert cell["kind"] == "text"
    assert "href" not in cell
    assert "src" not in cell


@pytest.mark.parametrize("path", ["/", "/overview"], ids=["judging", "overview"])
@pytest.mark.parametrize("who", [None, "ana", "owner"], ids=["stranger", "annotator", "owner"])
def test_pages_hold_nothing_of_the_table(server: Running, path: str, who: str | None) -> None:
    """Question, instructions, ids, names of columns and cells reach the page as JSON only."""
    page = server.client(who).get(path)
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    text = page.body.decode()
    assert "alert(1)" not in text
    assert "Alike?" not in text
    assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)", text)
    assert not re.search(r"\son\w+=|\sstyle=|javascript:", text)


@pytest.mark.parametrize("where", ["column-name", "id", "cell", "file-name", "question", "instructions"])
def test_markup_travels_as_json_only(server: Running, ana: Client, where: str) -> None:
    if where in ("question", "instructions"):
        found = ana.get("/api/setup")
        assert "alert(1)" in found.json["task"][where]
    else:
        owner = server.client("owner")
        point = {"id": f"{MARKUP}-0", "file-name": "c-markup"}.get(where, "good")
        found = owner.get(f"/api/thing/{_row(server, point)}")
        assert "alert(1)" in json.dumps(found.json)
        sources = [each["src"] for each in found.json["cells"] if "src" in each]
        assert all(re.fullmatch(r"/files/\d+/[\w%.~-]+", each) for each in sources)
    assert found.headers["content-type"] == "application/json"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in found.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/overview", "/api/setup", "/static/label.js", "/nothing"])
def test_the_policy_allows_no_inline_script_and_no_other_host(server: Running, ana: Client, path: str) -> None:
    policy = ana.get(path).headers["content-security-policy"]
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["img-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy
    assert "*" not in policy


@pytest.mark.parametrize("name", ["label.js", "label_page.js", "label_outbox.js", "overview.js"])
def test_scripts_make_no_markup_of_texts(server: Running, name: str) -> None:
    script = server.client().get(f"/static/{name}").body.decode()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", script)
    assert not re.search(r"""["'(]https?://(?!www\.w3\.org)""", script.replace("/^https?", ""))


@pytest.mark.parametrize(
    "path", [f"/static/{MARKUP}", f"/{MARKUP}", f"/api/thing/{MARKUP}"], ids=["asset", "page", "row"]
)
def test_errors_do_not_repeat_the_path(server: Running, path: str) -> None:
    found = server.client("owner").get(path.replace("<", "%3C").replace(">", "%3E"))
    assert found.status == 404
    assert b"alert" not in found.body
    assert found.headers["content-type"] == "application/json"


NAMES = {
    "markup": [MARKUP, "ben"],
    "header-injection": ["ana\r\nSet-Cookie: a=b", "ben"],
    "null": ["ana\0", "ben"],
    "escape-sequence": ["ana\x1b[31m", "ben"],
    "right-to-left": ["ana\u202egnp.exe", "ben"],
    "empty": ["", "ben"],
    "too-long": ["a" * 41, "ben"],
    "owner": ["owner", "ben"],
    "owner-in-capitals": ["OWNER", "ben"],
    "twice": ["ana", "ANA"],
    "separator": ["ana;ben", "cem"],
    "path": ["../ana", "ben"],
    "too-many": [f"p{number}" for number in range(201)],
    "none": [],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_names_of_annotators_are_plain(names: list[str]) -> None:
    with pytest.raises(ValueError, match="annotators"):
        check_names(names)


# ---- requests of other sites

FOREIGN = {
    "foreign-origin": {"Origin": "https://evil.example"},
    "null-origin": {"Origin": "null"},
    "origin-without-port": {"Origin": "http://127.0.0.1"},
    "origin-of-another-port": {"Origin": "http://127.0.0.1:1"},
    "origin-with-our-name-as-prefix": {"Origin": "http://127.0.0.1.evil.example"},
    "origin-as-https": {"Origin": "https://127.0.0.1:{port}"},
    "cross-site": {"Sec-Fetch-Site": "cross-site"},
    "same-site-but-other-port": {"Sec-Fetch-Site": "same-site"},
    "typed-post": {"Sec-Fetch-Site": "none"},
    "no-token": {"X-Closefar-Token": ""},
    "wrong-token": {"X-Closefar-Token": "A" * 43},
    "token-of-the-cookie": {"X-Closefar-Token": "{cookie}"},
    "text-plain": {"Content-Type": "text/plain"},
    "form": {"Content-Type": "application/x-www-form-urlencoded"},
    "multipart": {"Content-Type": "multipart/form-data; boundary=x"},
    "no-content-type": {"Content-Type": ""},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_requests_of_other_sites_change_nothing(server: Running, ana: Client, headers: dict[str, str]) -> None:
    (question, *_) = ana.questions(1)
    n = server.count()
    event = {"key": new_key(), "kind": "answer", "question": question["id"], "answer": "far"}
    sent = {
        name: value.format(port=server.port, cookie=(ana.cookie or "").partition("=")[2])
        for name, value in headers.items()
    }
    found = ana.request("POST", "/api/events", {"events": [event]}, sent)
    assert found.status in (403, 415)
    assert server.count() == n


def test_the_token_of_another_session_is_refused(server: Running, ana: Client, ben: Client) -> None:
    assert ana.post("/api/questions", {"n": 1}, X_Closefar_Token=ben.token or "").status == 403


def test_the_token_of_another_session_of_the_same_person_is_refused(server: Running, ana: Client) -> None:
    again = server.client("ana")
    assert again.token != ana.token
    assert ana.post("/api/questions", {"n": 1}, X_Closefar_Token=again.token or "").status == 403


@pytest.mark.parametrize("path", ["/api/setup", "/api/findings", "/api/thing/0", "/files/0/photo"])
def test_strangers_read_nothing(server: Running, path: str) -> None:
    assert server.client().get(path).status == 401


@pytest.mark.parametrize("path", ["/api/questions", "/api/events", "/api/review", "/enter"])
def test_changes_need_a_session_and_post(server: Running, ana: Client, path: str) -> None:
    n = server.count("handed")
    assert server.client().post(path, {"n": 1}).status == (400 if path == "/enter" else 401)
    for overriding in ({}, {"X_HTTP_Method_Override": "POST"}):
        found = ana.get(f"{path}?n=1", **overriding)
        assert found.status == 405
        assert found.headers["allow"] == "POST"
    assert server.count("handed") == n


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "CONNECT", "PROPFIND", "get"])
def test_other_methods_are_refused(server: Running, ana: Client, method: str) -> None:
    found = ana.request(method, "/api/setup")
    assert found.status in (400, 405)
    assert b"token" not in found.body


def test_a_preflight_gets_no_permission(server: Running) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-closefar-token"}
    for origin in ("https://evil.example", f"http://127.0.0.1:{server.port}"):
        found = server.client().request("OPTIONS", "/api/events", None, {**asked, "Origin": origin})
        assert found.status in (403, 405)
        assert not [name for name in found.headers if name.startswith("access-control")]


def test_reading_from_another_site_is_refused(server: Running, ana: Client) -> None:
    for path in ("/api/setup", "/api/findings", "/files/0/photo"):
        found = ana.get(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image")
        assert found.status == 403
        opened = ana.get(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")
        assert opened.status == 403
        assert found.headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_can_be_opened_from_a_link_but_not_framed(server: Running) -> None:
    linked = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert server.client().get("/", **linked, Sec_Fetch_Dest="document").status == 200
    framed = server.client().get("/", **linked, Sec_Fetch_Dest="iframe")
    assert framed.status == 403
    assert server.client().get("/").headers["x-frame-options"] == "DENY"


# ---- secrets and sessions


def _setup_with(server: Running, cookie: str) -> int:
    client = server.client()
    client.cookie = cookie
    return client.get("/api/setup").status


FORGED = {
    "another-name": "{owner}.{nonce}.{expiry}.{mac}",
    "another-nonce": "{person}.AAAAAAAAAAAAAAAAAAAAAA.{expiry}.{mac}",
    "later-expiry": "{person}.{nonce}.9{expiry}.{mac}",
    "truncated-mac": "{person}.{nonce}.{expiry}.{mac:.42}",
    "no-mac": "{person}.{nonce}.{expiry}.",
    "no-mac-part": "{person}.{nonce}.{expiry}",
    "extra-part": "{person}.{nonce}.{expiry}.{mac}.x",
    "shifted-dots": "{person}{nonce:.2}.{nonce}.{expiry}.{mac}",
    "empty": "",
    "dots": "...",
    "huge": "{person}.{nonce}.{expiry}.{mac}{huge}",
    "another-key": "{other}",
    "secret-as-cookie": "{secret}",
    "token-as-cookie": "{token}",
    "quoted": '"{person}.{nonce}.{expiry}.{mac}"',
    "not-ascii": "{person}\u00e9.{nonce}.{expiry}.{mac}",
}


@pytest.mark.parametrize("cookie", FORGED.values(), ids=FORGED)
def test_forged_cookies_are_refused(server: Running, ana: Client, cookie: str) -> None:
    name, _, value = (ana.cookie or "").partition("=")
    parts = dict(zip(("person", "nonce", "expiry", "mac"), value.split("."), strict=True))
    other = Sessions(b"k" * 32, ["ana", "ben"])
    parts |= {"owner": base64.urlsafe_b64encode(b"owner").decode().rstrip("="), "huge": "A" * 5000}
    parts |= {"other": other.begin(other.people["ana"], time.time()), "secret": server.secret("ana")}
    assert _setup_with(server, f"{name}={cookie.format(**parts, token=ana.token)}") == 401


def test_expired_sessions_are_refused(server: Running, ana: Client) -> None:
    sessions, name = server.server.sessions, (ana.cookie or "").partition("=")[0]
    now = time.time()
    old = sessions.begin(sessions.people["ana"], now - 31 * 86400)
    assert sessions.person_of(old, now) is None
    assert sessions.person_of(sessions.begin(sessions.people["ana"], now), now) is not None
    assert _setup_with(server, f"{name}={old}") == 401


def test_whoever_was_taken_off_the_list_is_out(server: Running, ana: Client) -> None:
    """With the same key: a cookie and a secret of before are worth nothing."""
    sessions = Sessions(server.server.store.key, ["ben", "cem"])
    assert sessions.person_of((ana.cookie or "").partition("=")[2], time.time()) is None
    assert sessions.person_with(server.secret("ana"), time.time()) is None


def test_a_ticket_works_once_and_for_a_short_time(server: Running) -> None:
    sessions = server.server.sessions
    ticket = sessions.make_ticket(time.time())
    assert server.client().enter(ticket).get("/api/setup").json["is_owner"]
    assert server.client().post("/enter", {"secret": ticket}).status == 403
    late = sessions.make_ticket(time.time() - 121)
    assert server.client().post("/enter", {"secret": late}).status == 403


SECRETS = {
    "empty": "",
    "wrong": "A" * 43,
    "truncated": "{ana:.42}",
    "longer": "{ana}A",
    "in-capitals": "{ANA}",
    "name": "ana",
    "not-ascii": "\u00e9" * 43,
    "too-long": "A" * 10_000,
    "null-byte": "{ana}\0",
    "lone-surrogate": "\ud800",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_wrong_secrets_open_nothing(server: Running, secret: str) -> None:
    own = server.secret("ana")
    found = server.client().post("/enter", {"secret": secret.format(ana=own, ANA=own.upper())})
    assert found.status in (400, 403)
    assert "set-cookie" not in found.headers


@pytest.mark.parametrize("where", ["query", "path", "header", "basic", "cookie-of-another-name"])
def test_a_secret_counts_nowhere_but_in_the_body(server: Running, where: str) -> None:
    secret, client = server.secret("ana"), server.client()
    headers = {
        "header": {"Authorization": f"Bearer {secret}"},
        "basic": {"Authorization": "Basic " + base64.b64encode(f"ana:{secret}".encode()).decode()},
        "cookie-of-another-name": {"Cookie": f"session={secret}"},
    }.get(where, {})
    path = {"query": f"/api/setup?secret={secret}", "path": f"/{secret}"}.get(where, "/api/setup")
    assert client.request("GET", path, None, headers).status in (401, 404)
    assert client.post(f"/enter?secret={secret}", {}).status == 400


def test_nothing_is_logged(
    server: Running, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    secret = server.secret("ben")
    with caplog.at_level(0):
        server.client().get(f"/?secret={secret}")
        server.client().post("/enter", {"secret": secret})
        server.client().post("/enter", {"secret": "x" + secret[1:]})
        server.raw(f"GET /{secret} HTTP/9.9\r\n\r\n".encode())
    written = capfd.readouterr()
    assert secret[1:] not in written.out + written.err + caplog.text


def test_the_file_of_judgements_holds_no_secret(server: Running, ana: Client) -> None:
    secrets = [server.secret(name).encode() for name in ("ana", "ben", "owner")]
    secrets += [(ana.cookie or "").partition("=")[2].encode(), (ana.token or "").encode(), server.server.store.key]
    for path in server.folder.glob("judgements.sqlite*"):
        assert path.stat().st_mode & 0o077 == 0, path
        if not path.name.endswith("-key"):
            assert not [each for each in secrets if each in path.read_bytes()]


def test_cookies_are_for_this_server_alone(server: Running) -> None:
    found = server.client().post("/enter", {"secret": server.secret("ana")})
    flags = {flag.strip().lower() for flag in found.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert not [flag for flag in flags if flag.startswith("domain")]


def test_a_planted_cookie_does_not_lock_anybody_out(server: Running, ana: Client) -> None:
    """Another server of the same machine can set a cookie of the same name."""
    name = (ana.cookie or "").partition("=")[0]
    assert _setup_with(server, f"{name}=planted; {ana.cookie}") == 200


# ---- names of hosts

HOSTS = {
    "other": "evil.example",
    "other-with-our-port": "evil.example:{port}",
    "without-port": "127.0.0.1",
    "other-port": "127.0.0.1:1",
    "any-address": "0.0.0.0:{port}",
    "our-name-as-prefix": "127.0.0.1.evil.example:{port}",
    "our-name-as-user": "127.0.0.1:{port}@evil.example",
    "with-path": "127.0.0.1:{port}/x",
    "trailing-dot": "127.0.0.1.:{port}",
    "number": "2130706433:{port}",
    "empty": "",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_other_hosts_are_refused(server: Running, ana: Client, host: str) -> None:
    found = ana.get("/api/setup", Host=host.format(port=server.port))
    assert found.status in (400, 421)
    assert b"token" not in found.body


RAW = {
    "no-host": "GET /api/setup HTTP/1.1\r\nCookie: {cookie}\r\n\r\n",
    "http-1.0-without-host": "GET /api/setup HTTP/1.0\r\nCookie: {cookie}\r\n\r\n",
    "two-hosts": "GET /api/setup HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\nCookie: {cookie}\r\n\r\n",
    "two-hosts-reversed": "GET /api/setup HTTP/1.1\r\nHost: evil.example\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n",
    "absolute-target": "GET http://evil.example/api/setup HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n",
    "absolute-target-of-ours": "GET http://{host}/api/setup HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n",
    "asterisk": "OPTIONS * HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "folded-header": "GET /api/setup HTTP/1.1\r\nHost: {host}\r\nX: a\r\n b\r\nHost: evil\r\nCookie: {cookie}\r\n\r\n",
    "space-before-colon": "GET /api/setup HTTP/1.1\r\nHost : {host}\r\nCookie: {cookie}\r\n\r\n",
    "null-in-header": "GET /api/setup HTTP/1.1\r\nHost: {host}\r\nX: a\0b\r\nCookie: {cookie}\r\n\r\n",
    "bare-line-feed": "GET /api/setup HTTP/1.1\r\nHost: evil.example\nHost: {host}\r\nCookie: {cookie}\r\n\r\n",
    "space-in-target": "GET /api/setup HTTP/1.1 HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n",
    "http-2-preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls-hello": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "long-head": "GET /api/setup HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nX: " + "a" * 70_000 + "\r\n\r\n",
    "many-headers": "GET /api/setup HTTP/1.1\r\nHost: {host}\r\n" + "X: a\r\n" * 10_000 + "Cookie: {cookie}\r\n\r\n",
    "long-target": "GET /" + "a" * 10_000 + " HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n",
}


@pytest.mark.parametrize("request_text", RAW.values(), ids=RAW)
def test_odd_requests_get_nothing(server: Running, ana: Client, request_text: str) -> None:
    text = request_text.replace("{host}", f"127.0.0.1:{server.port}").replace("{cookie}", ana.cookie or "")
    found = server.raw(text.encode("latin-1"))
    assert b" 200 " not in found.partition(b"\r\n")[0]
    assert b"token" not in found


@pytest.mark.parametrize("header", ["X-Forwarded-Host", "X-Host", "Forwarded", "X-Forwarded-Proto", "X-Original-URL"])
def test_headers_of_proxies_are_not_believed(server: Running, ana: Client, header: str) -> None:
    values = {
        "Forwarded": f"host=127.0.0.1:{server.port}",
        "X-Forwarded-Proto": "https",
        "X-Original-URL": "/api/setup",
    }
    value = values.get(header, f"127.0.0.1:{server.port}")
    assert ana.request("GET", "/api/setup", None, {"Host": "evil.example", header: value}).status == 421
    assert "token" not in ana.request("GET", "/", None, {header: value}).body.decode()


SMUGGLED = {
    "both-lengths": "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
    "two-lengths": "Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}",
    "list-of-lengths": "Content-Length: 2, 60\r\n\r\n{}",
    "negative-length": "Content-Length: -1\r\n\r\n{}",
    "plus-length": "Content-Length: +2\r\n\r\n{}",
    "hexadecimal-length": "Content-Length: 0x2\r\n\r\n{}",
    "unknown-coding": "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two-codings": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "coding-with-tab": "Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "broken-chunk": "Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
    "space-before-colon": "Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED)
def test_no_request_is_smuggled_in_another(server: Running, ana: Client, rest: str) -> None:
    """What follows a body of doubtful length is not answered as a request."""
    host = f"127.0.0.1:{server.port}"
    head = f"POST /api/questions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Cookie: {ana.cookie}\r\nX-Closefar-Token: {ana.token}\r\n"
    second = f"GET /api/setup HTTP/1.1\r\nHost: {host}\r\nCookie: {ana.cookie}\r\n\r\n"
    found = server.raw((head + rest + second).encode())
    assert b'"token"' not in found
    assert b'"questions"' not in found


# ---- bodies

BODIES = {
    "empty": b"",
    "no-json": b"n=1",
    "list": b"[]",
    "null": b"null",
    "deep-lists": b'{"n":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "deep-objects": b'{"n":' * 10_000 + b"1" + b"}" * 10_000,
    "nan": b'{"n": NaN}',
    "infinity": b'{"n": Infinity}',
    "too-large-a-float": b'{"n": 1e999}',
    "too-large-an-integer": b'{"n": 1' + b"0" * 60_000 + b"}",
    "beyond-64-bits": b'{"n": 18446744073709551616}',
    "negative": b'{"n": -1}',
    "zero": b'{"n": 0}',
    "too-many": b'{"n": 11}',
    "fraction": b'{"n": 1.5}',
    "float": b'{"n": 1.0}',
    "truth": b'{"n": true}',
    "text": b'{"n": "1"}',
    "object": b'{"n": {"$gt": 0}}',
    "missing": b"{}",
    "unknown-key": b'{"n": 1, "annotator": "ben"}',
    "prototype": b'{"n": 1, "__proto__": {"is_owner": true}}',
    "twice": b'{"n": 1, "n": 2}',
    "utf-16": '{"n": 1}'.encode("utf-16"),
    "invalid-utf-8": b'{"n": 1, "\xff": 1}',
    "byte-order-mark": b'\xef\xbb\xbf{"n": 1}',
    "trailing": b'{"n": 1} {"n": 1}',
    "comment": b'{"n": 1 /* */}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_wrong_bodies_are_refused_with_a_sentence(server: Running, ana: Client, body: bytes) -> None:
    found = ana.request("POST", "/api/questions", body)
    assert found.status == 400
    assert found.json["error"].endswith(".")
    assert len(found.body) < 500


def _event(**changes: Any) -> dict[str, Any]:
    return {"key": new_key(), "kind": "answer", "question": 1, "answer": "far", "undoes": None, "seconds": 1, **changes}


EVENTS = {
    "no-events": [],
    "too-many-events": [_event() for _ in range(51)],
    "not-objects": [1, 2],
    "short-key": [_event(key="a")],
    "long-key": [_event(key="a" * 65)],
    "sql-in-the-key": [_event(key=SQL)],
    "key-of-another-type": [_event(key=7)],
    "question-as-text": [_event(question="1 OR 1=1")],
    "question-beyond-64-bits": [_event(question=2**64)],
    "negative-question": [_event(question=-1)],
    "question-truth": [_event(question=True)],
    "answer-as-object": [_event(answer={"far": 1})],
    "long-answer": [_event(answer="a" * 101)],
    "surrogate-in-the-answer": [_event(answer="\ud800")],
    "null-in-the-answer": [_event(answer="far\0")],
    "negative-seconds": [_event(seconds=-1)],
    "seconds-as-text": [_event(seconds="1")],
    "endless-seconds": [_event(seconds=1e300)],
    "long-kind": [_event(kind="a" * 1000)],
    "own-annotator": [_event(annotator="ben")],
    "own-purpose": [_event(purpose="review")],
    "own-time": [_event(at=0)],
    "undoes-sql": [_event(kind="undo", answer=None, undoes=SQL)],
}


@pytest.mark.parametrize("events", EVENTS.values(), ids=EVENTS)
def test_wrong_events_are_refused_with_a_sentence(server: Running, ana: Client, events: list[Any]) -> None:
    n = server.count()
    found = ana.post("/api/events", {"events": events})
    assert found.status == 400
    assert found.json["error"].endswith(".")
    assert server.count() == n


@pytest.mark.parametrize("how", ["content-length", "chunked", "length-that-lies"])
def test_oversized_bodies_are_cut_off(server: Running, ana: Client, how: str) -> None:
    head = f"POST /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    head += f"Cookie: {ana.cookie}\r\nX-Closefar-Token: {ana.token}\r\n"
    large = b'{"events": ["' + b"a" * 200_000 + b'"]}'
    rest = {
        "content-length": b"Content-Length: %d\r\n\r\n%s" % (len(large), large),
        "chunked": b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(large), large) * 5,
        "length-that-lies": b"Content-Length: 99999999999999999999\r\n\r\n{}",
    }[how]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head.encode() + rest)
        found = receive(connection)
    assert not found or b" 413 " in found.partition(b"\r\n")[0]  # a reset may overtake the answer


def test_a_body_that_never_ends_is_cut_off(server: Running, ana: Client) -> None:
    head = f"POST /enter HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(5000):
                connection.sendall(b"1000\r\n" + b"a" * 4096 + b"\r\n")
                sent += 4096
    assert sent < 5000 * 4096


# ---- what is somebody else's


def test_a_question_of_somebody_else_cannot_be_answered(server: Running, ana: Client, ben: Client) -> None:
    (hers, *_) = ana.questions(1)
    receipt = ben.answer(hers["id"], "far")
    assert not receipt["recorded"]
    assert "never handed" in receipt["reason"]


def test_answers_of_others_cannot_be_looked_at_again(server: Running, ana: Client) -> None:
    server.publish(doubtful=[{"question": 1, "annotator": "ben"}, {"question": 2, "annotator": "ana"}])
    assert ana.post("/api/review", {"question": 1}).status == 404
    assert ana.post("/api/review", {"question": 10**9}).status == 404
    assert [each["annotator"] for each in ana.get("/api/findings").json["doubtful"]] == ["ana"]


def test_what_is_for_the_owner_is_not_for_annotators(server: Running, ana: Client) -> None:
    server.publish(quality={"agreement": 0.5, "low": 0.4, "high": 0.6}, annotators=[{"name": "ben"}])
    assert ana.get("/api/thing/0").status == 403
    found = ana.get("/api/findings").json
    assert not {"quality", "annotators", "map", "curve", "kappa"} & set(found)
    assert "annotators" in server.client("owner").get("/api/findings").json


def test_the_owner_of_a_task_with_annotators_does_not_judge(server: Running) -> None:
    owner = server.client("owner")
    n = server.count("handed")
    assert owner.post("/api/questions", {"n": 1}).status == 403
    assert owner.post("/api/events", {"events": [_event()]}).status == 403
    assert server.count("handed") == n


def test_one_question_has_one_answer_however_often_it_is_sent_at_once(server: Running, ana: Client) -> None:
    (hers, *_) = ana.questions(1)
    receipts: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: receipts.append(ana.answer(hers["id"], "far"))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(receipt["recorded"] for receipt in receipts) == 1


def test_sql_and_templates_in_a_table_are_data(server: Running) -> None:
    assert _thing(server, f"{SQL}-1")["id"] == f"{SQL}-1"
    assert "{{7*7}}" in json.dumps(_thing(server, "{{7*7}}-3"))


# ---- other protocols, time and numbers


def test_there_are_no_websockets(server: Running, ana: Client) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    found = ana.request("GET", "/", None, {**upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    assert found.status != 101
    assert ana.request("GET", "/", None, {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}).status != 101


def test_responses_do_not_name_the_server(server: Running, ana: Client) -> None:
    headers = ana.get("/api/setup").headers
    assert "server" not in headers
    assert "x-powered-by" not in headers
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"


QUICK = ClientLimits(seconds=1, connections=20)
SELDOM = ClientLimits(rate=0.5, burst=40.0)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with little patience."""
    with running(tmp_path_factory.mktemp("quick"), number_table(60), limits=QUICK) as found:
        yield found


def _is_closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection within a few seconds."""
    connection.settimeout(10)
    try:
        return connection.recv(65536) == b""
    except ConnectionError:
        return True


SLOW = {
    "nothing": b"",
    "nothing-after-a-response": b"GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n",
    "half-a-line-after-a-response": b"GET /x HTTP/1.1\r\nHost: {host}\r\n\r\nGET / HT",
    "half-a-line": b"GET / HT",
    "half-the-headers": b"GET / HTTP/1.1\r\nHost: x\r\n",
    "half-a-body": b"POST /enter HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    b"Content-Length: 50\r\n\r\n{",
    "half-a-chunk": b"POST /enter HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    "waits-for-100": b"POST /enter HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_slow_clients_are_cut_off(quick: Running, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", quick.port), timeout=5) as connection:
        connection.sendall(sent.replace(b"{host}", f"127.0.0.1:{quick.port}".encode()))
        if b"Expect" in sent:
            assert b" 100 " in connection.recv(100)
        assert (b" 404 " in receive(connection)) == (b"/x" in sent)  # ends when the server closes it
        assert _is_closed(connection)
    _check_served(quick.client("owner"))


def test_whoever_sends_a_byte_now_and_then_is_cut_off(quick: Running) -> None:
    sent = 0
    with (
        socket.create_connection(("127.0.0.1", quick.port), timeout=5) as connection,
        contextlib.suppress(ConnectionError),
    ):
        for letter in b"GET / HTTP/1.1\r\nX: " + b"a" * 400:
            connection.sendall(bytes([letter]))
            sent += 1
            time.sleep(0.05)
    assert sent < 400
    _check_served(quick.client("owner"))


def test_whoever_does_not_read_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(PNG + bytes(16 * 2**20))
    table = "id,size,photo\n" + "".join(f"P{row},{row},large.png\n" for row in range(5))
    with running(tmp_path, table, show=("photo",), limits=QUICK) as server:
        client = server.client("owner")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            host = f"127.0.0.1:{server.port}"
            connection.sendall(
                f"GET /files/0/photo HTTP/1.1\r\nHost: {host}\r\nCookie: {client.cookie}\r\n\r\n".encode()
            )
            deadline = time.monotonic() + 10
            while server.server._server.server_state.connections and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not server.server._server.server_state.connections
        _check_served(client)


@pytest.mark.parametrize("name", ["half-a-line", "half-the-headers", "half-a-body", "half-a-chunk"])
def test_strangers_who_hold_hundreds_of_connections_keep_nobody_out(tmp_path: Path, name: str) -> None:
    """They may keep them open for as long as the default lets them; those of honest clients are younger."""
    with (
        running(tmp_path, number_table(20), limits=ClientLimits(connections=200)) as server,
        contextlib.ExitStack() as stack,
    ):
        client = server.client("owner")
        sent = SLOW[name].replace(b"{host}", f"127.0.0.1:{server.port}".encode())
        for number in range(400):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            connection.sendall(sent)
            if number % 100 == 99:
                _check_served(client)
        connections = server.server._server.server_state.connections
        deadline = time.monotonic() + 20
        while len(connections) > 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 100 < len(connections) <= 200
        _check_served(client)


def test_what_is_not_http_leaves_nothing_on_the_terminal(server: Running, capfd: pytest.CaptureFixture[str]) -> None:
    """Also where it follows a request that is being answered, so that its response comes too late."""
    host = f"127.0.0.1:{server.port}"
    whole = f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"
    for text in (
        "\r\n\r\n",
        "HEAD HEAD\r\n\r\n",
        f"HEAD / HTTP/1.1\r\nHost : {host}\r\n\r\n",
        whole + "nothing\r\n\r\n",
    ):
        assert b" 500 " not in server.raw(text.encode(), wait=0.2)
        assert b" 500 " not in server.raw((whole.replace("GET", "HEAD") + text).encode(), wait=0.2)
    server.raw(f"POST /enter HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n".encode(), wait=0.2)
    assert capfd.readouterr().err == ""


def test_pipelined_requests_are_bounded_by_the_rate(tmp_path: Path) -> None:
    with running(tmp_path, number_table(20), limits=SELDOM) as server:
        client = server.client("owner")
        one = f"GET /api/setup HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nCookie: {client.cookie}\r\n\r\n"
        found = server.raw((one * 500).encode(), wait=3.0)
        assert 0 < found.count(b"HTTP/1.1 200") < 100
        assert found.count(b"HTTP/1.1 429") > 100


def test_the_rate_of_one_person_does_not_slow_others(tmp_path: Path) -> None:
    with running(tmp_path, number_table(20), annotators=("ana", "honest"), limits=SELDOM) as server:
        ana = server.client("ana")
        statuses = [ana.post("/api/questions", {"n": 1}).status for _ in range(100)]
        assert statuses[0] == 200
        assert 429 in statuses
        _check_served(server.client("honest"))


def test_guessing_secrets_is_bounded_and_locks_nobody_out(tmp_path: Path) -> None:
    with running(tmp_path, number_table(20)) as server:
        guesses = [server.client().post("/enter", {"secret": new_key()}).status for _ in range(120)]
        assert set(guesses) == {403, 429}
        _check_served(server.client("owner"))
