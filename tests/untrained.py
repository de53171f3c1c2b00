"""What the tests of the explorer share: untrained models on show, and a server for them."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mapformers.explorer.loaded_runs import LoadedRuns
from mapformers.explorer.server import Explorer, Server
from mapformers.runs.config import RunConfig
from mapformers.runs.run import Run

SMALL = {
    "navigation": {"grid": 6, "steps": 8},
    "dyck": {},
    "family-tree": {"generations": 3},
    "graph": {"world": "subway"},
    "selective-copy": {"n_symbols": 8, "n_blanks": 8},
}


def untrained_runs(task: str, *models: str, **settings: Any) -> LoadedRuns:
    """Untrained models of a small task."""
    runs = []
    for seed, name in enumerate(models or ("mapwm",)):
        config = RunConfig.compose(task, name, scale="smoke", seed=seed, **(SMALL[task] | {"d_model": 16} | settings))
        runs.append(Run(Path("nowhere"), config, config.build_model().eval(), {}, 0))
    return LoadedRuns(tuple(runs))


@contextmanager
def served(loaded: LoadedRuns) -> Iterator[Server]:
    """A server in a thread of its own, without the players, which take a while."""
    explorer = Explorer(loaded)
    explorer.players = dict
    server = Server(explorer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server: Server, path: str, body: Any = None, method: str = "POST", **headers: str) -> tuple[int, Any]:
    """The status of an answer and its content: JSON as data, anything else as bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    given = {"Host": f"127.0.0.1:{server.port}"}
    if method == "POST":
        given |= {"Content-Type": "application/json", "X-Explorer-Key": server.secret}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        if value:
            connection.putheader(name, value)
    if content is not None and "Content-Length" not in given:
        connection.putheader("Content-Length", str(len(content)))
    connection.endheaders(content if "Content-Length" not in given else None)
    answer = connection.getresponse()
    found = answer.read()
    connection.close()
    return answer.status, json.loads(found) if "json" in answer.headers["Content-Type"] else found
