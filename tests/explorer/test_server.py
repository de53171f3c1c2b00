"""Nobody gets in: loopback, Host, Origin, the secret, a list of files, and a limit on what is read."""

import http.client
import socket
import time

import pytest
import torch

from mapformers.explorer.server import MAX_BODY, Server, page_files
from untrained import ask, served, untrained_runs

GB = 2**30


@pytest.fixture(scope="module")
def server():
    torch.manual_seed(0)
    with served(untrained_runs("navigation", "mapwm", "rope")) as server:
        yield server


def test_it_listens_on_the_loopback_alone_on_a_port_of_its_own(server):
    host, port = server.server_address[:2]
    assert host == "127.0.0.1" and port > 0
    with served(untrained_runs("dyck")) as other:
        assert other.port != port and other.secret != server.secret and len(server.secret) >= 40
    assert server.url == f"http://127.0.0.1:{port}/#key={server.secret}"  # behind #: no browser ever sends it


def test_the_page_and_its_files_are_served_with_a_strict_policy(server):
    status, page = ask(server, "/", method="GET")
    assert status == 200 and b"<title>Map explorer" in page and server.secret.encode() not in page
    for name, content in page_files().items():
        assert ask(server, f"/{name}", method="GET") == (200, content)
    assert b"<script>" not in page and b" style=" not in page and b"onclick" not in page
    headers = raw(server, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode())
    policy = next(line for line in headers.split("\r\n") if line.startswith("Content-Security-Policy"))
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
    assert "Access-Control" not in headers and "nosniff" in headers


def test_a_question_is_answered(server):
    status, about = ask(server, "/about", {})
    assert status == 200 and [model["label"] for model in about["models"]] == ["MapWM-r2", "RoPE"]
    status, seen = ask(server, "/read", {"model": 1, "tokens": [0, 5, 2]})
    assert status == 200 and len(seen["logits"]) == 3


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil.example", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_foreign_host_is_refused(server, host, method):
    """A name that somebody lets resolve to 127.0.0.1 (DNS rebinding) is in the Host of what the browser sends."""
    assert ask(server, "/" if method == "GET" else "/about", {}, method, Host=host.format(port=server.port))[0] == 403


def test_two_hosts_are_refused(server):
    own = f"Host: 127.0.0.1:{server.port}\r\n"
    assert " 403 " in raw(server, f"GET / HTTP/1.1\r\n{own}Host: evil.example\r\n\r\n".encode())


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "file://"]
)
def test_a_foreign_origin_is_refused(server, origin):
    assert ask(server, "/about", {}, Origin=origin.format(port=server.port))[0] == 403
    assert ask(server, "/about", {}, Origin=f"http://127.0.0.1:{server.port}")[0] == 200


@pytest.mark.parametrize("key", ["", "wrong", "é"])
def test_without_the_secret_nothing_is_answered(server, key):
    assert ask(server, "/about", {}, X_Explorer_Key=key)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/server.py",
        "//etc/passwd",
        "/page/../server.py",
        "/server.py",
        "/session.py",
        "/.git/config",
        "/index.html/../../server.py",
        "/main.js%00.html",
        "/etc/passwd",
        "/index.html?x",
        "/\\..\\server.py",
    ],
)
def test_only_files_of_the_list_are_served(server, path):
    assert ask(server, path, method="GET")[0] == 404
    assert ask(server, path, {})[0] == 404


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read(server):
    began = time.monotonic()
    head = f"POST /read HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    head += f"X-Explorer-Key: {server.secret}\r\nContent-Length: {GB}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        sent, piece = 0, b"x" * 2**16
        try:
            while sent < GB:  # the server hangs up long before
                sent += connection.send(piece)
        except OSError:
            pass
    assert sent < GB // 8 and time.monotonic() - began < 20
    assert ask(server, "/read", b"x", Content_Length=str(GB))[0] == 413
    assert ask(server, "/read", b"x", Content_Length="9" * 5000)[0] == 413
    assert ask(server, "/about", {})[0] == 200  # and it still answers


def test_a_length_that_is_none_is_refused(server):
    for length in ("-1", "1e3", "", "٣"):
        own = f"POST /read HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Explorer-Key: {server.secret}\r\n"
        text = f"{own}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        assert " 411 " in raw(server, text.encode()), length


def test_a_question_that_is_wrong_is_a_sentence(server):
    assert ask(server, "/read", {"tokens": [999]}) == (
        400,
        {"error": "Token 999 is out of range: the model knows 0 to 20."},
    )
    assert ask(server, "/read", {"model": 2, "tokens": [0]})[0] == 400
    assert ask(server, "/read", {"model": True, "tokens": [0]})[0] == 400
    for readings in ("all", [0], [{}] * 17, [{"tokens": [0]}, {"tokens": [999]}]):
        assert ask(server, "/read", {"readings": readings})[0] == 400
    assert ask(server, "/read", b"{not json")[1] == {"error": "The question is not JSON."}
    assert ask(server, "/read", b"[" * 100_000)[0] == 400
    assert ask(server, "/read", b"\xff\xfe")[0] == 400
    assert ask(server, "/world", {"split": "nowhere", "seed": 1})[0] == 400
    assert ask(server, "/world", {"split": "iid", "seed": -1})[0] == 400
    assert ask(server, "/graph", {"world": "{}"})[0] == 400
    assert ask(server, "/tokens", {"text": "x"})[0] == 400
    assert ask(server, "/certain", {"tokens": [0]})[0] == 400


def test_a_form_of_another_page_is_refused(server):
    """A form can post without asking, but neither as JSON nor with the header."""
    assert ask(server, "/about", b"a=b", Content_Type="text/plain")[0] == 415


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "HEAD"])
def test_other_methods_do_not_exist(server, method):
    connection = f"{method} / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    assert " 501 " in raw(server, connection.encode())


def test_the_limit_of_a_body_holds_what_the_page_sends():
    assert 20_000 * 4 + 1000 < MAX_BODY < GB


def raw(server: Server, text: bytes) -> str:
    """What comes back for the bytes of a request, up to the end of the headers."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(text)
        found = b""
        while b"\r\n\r\n" not in found:
            piece = connection.recv(4096)
            if not piece:
                break
            found += piece
    return found.decode(errors="replace")


def test_a_mistake_of_ours_is_reported_and_not_taken_for_a_wrong_question(server, capsys, monkeypatch):
    answer = {"speed": float("nan")}  # which JSON does not have
    monkeypatch.setitem(server.explorer.answers, "about", lambda asked: answer)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/about", {})
    assert "ValueError: Out of range float values" in capsys.readouterr().err
