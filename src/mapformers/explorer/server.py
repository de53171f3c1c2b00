"""The page over HTTP, for the person at this machine alone.

It listens on 127.0.0.1, on a port that the system chooses. Files are served by an exact list of names. Everything else
is a POST that must carry the secret of this server (which is in the fragment of the URL, so it never goes over the wire
by itself), name this server as its Host, and come from its own page (Origin). Another page in the same browser can
therefore neither ask nor read anything, nor can a name that resolves to 127.0.0.1.
"""

import hmac
import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from mapformers.errors import UserError, require
from mapformers.explorer.loaded_runs import LoadedRuns, about_layers
from mapformers.explorer.session import ReadRequest, Session, whole_numbers
from mapformers.explorer.worlds import draw_world, is_certain, own_graph

HOST = "127.0.0.1"
MAX_SNAPSHOTS = 64  # that are held in memory
MAX_READINGS = 16  # in one question
MAX_BODY = 2**20  # bytes of a request: the JSON of a large graph
SECRET_HEADER = "X-Explorer-Key"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Answer = Callable[[dict[str, Any]], Any]


def page_files() -> dict[str, bytes]:
    """name -> content, of every file of the page."""
    folder = resources.files("mapformers.explorer") / "page"
    files = [file for file in folder.iterdir() if file.name[file.name.rfind(".") :] in TYPES]
    return {file.name: file.read_bytes() for file in sorted(files, key=lambda file: file.name)}


class Explorer:
    """What the page may ask, by name, and the models that answer."""

    def __init__(self, loaded: LoadedRuns):
        self.loaded, self.task = loaded, loaded.task
        self.sessions = [Session(model) for model in loaded.models]
        self.session_at = lru_cache(MAX_SNAPSHOTS)(lambda index, step: Session(loaded.at_snapshot(index, step)))
        self.about = loaded.about()
        self.players: Callable[[], dict[str, Any]] = cache(loaded.players)
        self.answers: dict[str, Answer] = {
            "about": lambda asked: self.about,
            "players": lambda asked: self.players(),
            "read": self.read,
            "world": lambda asked: draw_world(self.task, asked.get("split", "iid"), asked.get("seed", 0)),
            "graph": lambda asked: own_graph(self.task, asked.get("world"), 0),
            "certain": lambda asked: is_certain(self.task, whole_numbers(asked.get("tokens"), "tokens")),
            "tokens": self.tokens,
            "snapshot": lambda asked: {"layers": about_layers(self._session(asked).model)},
        }

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        """One reading, or several (``readings``), one after another: threads would only wait for each other."""
        readings = asked.get("readings")
        if readings is None:
            return self._session(asked).read(ReadRequest.of(asked))
        plain = isinstance(readings, list) and all(isinstance(one, dict) for one in readings)
        require(plain and len(readings) <= MAX_READINGS, f"readings must be a list of at most {MAX_READINGS} readings.")
        return {"answers": [self._session(one).read(ReadRequest.of(one)) for one in readings]}

    def _session(self, asked: dict[str, Any]) -> Session:
        """The model that is asked, as it is now or as it was after a step of its training."""
        index, step = asked.get("model", 0), asked.get("snapshot")
        known = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < len(self.sessions)
        require(known, f"There are models 0 to {len(self.sessions) - 1}.")
        if step is None:
            return self.sessions[index]
        require(isinstance(step, int), "snapshot must be the number of a step.")
        return self.session_at(index, step)

    def tokens(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Text as the tokens of a language model."""
        text = asked.get("text")
        require(isinstance(text, str), "text must be text.")
        corpus = getattr(self.task, "corpus", None)
        require(corpus is not None, "Only a model of text reads text.")
        assert corpus is not None
        return {"tokens": corpus.tokenizer.encode([text])[0].tolist()}


class Server(ThreadingHTTPServer):
    """Serves one explorer on a free port; ``url`` is where the page is, with the secret in its fragment."""

    daemon_threads = True

    def __init__(self, explorer: Explorer):
        super().__init__((HOST, 0), Handler)
        self.explorer = explorer
        self.secret = secrets.token_urlsafe(32)
        self.files = page_files()
        self._working = threading.Condition()
        self._at_work = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While an answer is computed."""
        with self._working:
            self._at_work += 1
        try:
            yield
        finally:
            with self._working:
                self._at_work -= 1
                self._working.notify_all()

    def server_close(self) -> None:
        """Connections that are silent are dropped, but an answer is computed to its end: torch is not to be cut off."""
        super().server_close()
        with self._working:
            self._working.wait_for(lambda: self._at_work == 0, timeout=60)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/#key={self.secret}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of ours; a browser that hangs up is none."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mapformers", ""
    timeout = 60  # seconds that a connection may stay silent
    wbufsize, disable_nagle_algorithm = -1, True  # an answer leaves in one piece and at once

    def do_GET(self) -> None:
        if not self._is_for_us():
            self._refuse(403, "This page is for the person at this machine.")
            return
        name = self.path.removeprefix("/") or "index.html"
        content = self.server.files.get(name)  # an exact name of the list: no path is ever opened
        if content is None:
            self._refuse(404, "There is no such file.")
            return
        self._send(200, content, TYPES[name[name.rfind(".") :]])

    def do_POST(self) -> None:
        if not self._is_for_us():
            self._refuse(403, "This page is for the person at this machine.")
            return
        if not hmac.compare_digest(self.headers.get(SECRET_HEADER, "").encode(), self.server.secret.encode()):
            self._refuse(403, "The key is missing; open the address that `mapformers explore` printed.")
            return
        answer = self.server.explorer.answers.get(self.path.removeprefix("/"))
        if answer is None:
            self._refuse(404, "There is no such question.")
            return
        if self.headers.get("Content-Type") != "application/json":
            self._refuse(415, "Questions are JSON.")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._refuse(411, "A question says how long it is.")
            return
        if len(length) > 9 or int(length) > MAX_BODY:
            self._refuse(413, f"A question has at most {MAX_BODY} bytes.")
            return
        body = self.rfile.read(int(length))
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            self._send_json(400, {"error": "The question is not JSON."})
            return
        try:
            require(isinstance(asked, dict), "A question is an object.")
            with self.server.at_work():
                found = answer(asked)
            self._send_json(200, found)
        except UserError as error:
            self._send_json(400, {"error": str(error)})

    def _is_for_us(self) -> bool:
        """Whether the request names this very server, and comes from its page or from no page."""
        own = f"{HOST}:{self.server.port}"
        return self.headers.get_all("Host") == [own] and self.headers.get("Origin", f"http://{own}") == f"http://{own}"

    def _refuse(self, status: int, sentence: str) -> None:
        self.close_connection = True  # what is left of its body is not read
        self._send_json(status, {"error": sentence})

    def _send_json(self, status: int, answer: Any) -> None:
        text = json.dumps(answer, allow_nan=False, separators=(",", ":"))
        self._send(status, text.encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed of each request."""
