"""Ten minutes of mixed requests to the explorer on this machine: seconds of each kind, answers 429, and memory.

    python -m benchmarks.server_load
    python -m benchmarks.server_load --minutes 1 --clients 2 --no-write

The server runs in a process of its own, on a free port of 127.0.0.1, with the built-in model and 64 MB for kept
results. Each client sends one request after the other, of kinds and texts that a seed draws, as fast as answers come.
An answer 429 is right where too many wait; the client waits as `Retry-After` says. Any other error ends the run.

Memory is the resident size of the server's process. It is flat if it does not grow once the cache of results is full:
the largest size of the last third of the time is compared with that of the third before. Writes results/server_load.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch

import gaflow
from benchmarks.long_texts import review
from benchmarks.report import provenance, write

LENGTHS = (14, 32, 64, 128)  # tokens
KEPT_BYTES = 64 << 20
SECONDS_BETWEEN_SAMPLES = 2.0
FLAT = 1.05  # how much larger the last third may be than the third before
WEIGHTS = {
    "explain": 3,
    "compare": 1,
    "predictions": 3,
    "mask": 1,
    "solve, an edge cut": 8,
    "solve, by sentence": 2,
    "drawing of an opened row": 3,
    "routes": 4,
    "cut": 2,
    "ranges": 1,
    "lists": 6,
    "stopped work": 1,
}


def serve(port: int) -> None:
    """The server's process."""
    import uvicorn

    from gaflow.web import Limits, ServerSettings, create_app

    torch.set_num_threads(1)  # the clients and the page's own requests have the other core
    application = create_app(ServerSettings(port=port, limits=Limits(kept_bytes=KEPT_BYTES)))
    uvicorn.run(application, host="127.0.0.1", port=port, log_level="warning", access_log=False)


class Client:
    """Sends requests one after the other, and notes how long each took."""

    def __init__(self, address: str, texts: list[str], seed: int):
        self.address = address
        self.texts = texts
        self.random = random.Random(seed)
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self.busy: Counter[str] = Counter()
        self.lost = 0  # results that the server had dropped, as it may
        self.error: BaseException | None = None
        self.result: dict[str, Any] = {}  # the latest explanation
        self._kind = ""

    def run(self, end: float) -> None:
        """Send requests until a moment of `time.monotonic`."""
        try:
            self._ask("first", "explain", {"text": self.texts[0], "edges": 600})
            while time.monotonic() < end:
                (kind,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
                self._kinds()[kind](kind)
        except BaseException as error:
            self.error = error

    def _kinds(self) -> dict[str, Callable[[str], object]]:
        return {
            "explain": self._explain,
            "compare": lambda kind: self._ask(kind, "compare", {"text": self._text(), "methods": ["agf", "attcat"]}),
            "predictions": lambda kind: self._ask(kind, "predictions", {"text": self._text()}),
            "mask": lambda kind: self._of_result(kind, "mask", {"levels": [10, 50, 90]}),
            "solve, an edge cut": self._cut_edge,
            "solve, by sentence": lambda kind: self._of_result(kind, "solve", {"groups": "sentence", "edges": 600}),
            "drawing of an opened row": self._open,
            "routes": lambda kind: self._of_result(kind, "routes", {"k": 5}),
            "cut": lambda kind: self._of_result(kind, "cut", {}),
            "ranges": lambda kind: self._of_result(kind, "ranges", {}),
            "lists": lambda kind: self._request(kind, self.random.choice(["models", "methods", "health"]), None),
            "stopped work": self._stop,
        }

    def _text(self) -> str:
        return self.random.choice(self.texts)

    def _explain(self, kind: str) -> None:
        text = self._text()
        method = self.random.choice(["agf", None])
        answer = self._ask(f"{kind}, {method or 'default'}", "explain", {"text": text, "method": method, "edges": 600})
        if answer is not None:
            self.result = answer

    def _cut_edge(self, kind: str) -> None:
        tokens = len(self.result["attribution"]["tokens"])
        edge = [self.random.randrange(5), self.random.randrange(tokens), self.random.randrange(tokens)]
        self._of_result(f"{kind}, {tokens} tokens", "solve", {"cut_edges": [edge], "edges": 600})

    def _open(self, kind: str) -> None:
        units = self.result["drawing"].get("units")
        if units is None:
            return
        opened = self.random.randrange(len(units["members"]))
        groups = [tokens for unit, tokens in enumerate(units["members"]) if unit != opened]
        self._of_result(kind, "drawing", {"groups": groups, "edges": 600})

    def _stop(self, kind: str) -> None:
        started = self._request(None, "explain", {"text": self.texts[-1]}, Prefer="respond-async")
        if started is not None:
            self._request(kind, f"work/{started['id']}", None, method="DELETE")

    def _of_result(self, kind: str, path: str, body: dict[str, Any]) -> None:
        if self._ask(kind, path, {"id": self.result["id"], **body}) is None:
            return

    def _ask(self, kind: str, path: str, body: dict[str, Any]) -> Any:
        answer = self._request(kind, path, body)
        if kind == "first":
            self.result = answer
        return answer

    def _request(self, kind: str | None, path: str, body: Any, method: str | None = None, **headers: str) -> Any:
        """The answer; None where the server was busy or had dropped the result."""
        content = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.address}{path}", content, sent, method=method)
        started = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            if error.code == 429:
                self.busy[kind or path] += 1
                time.sleep(float(error.headers["Retry-After"]))
                return None
            if error.code == 404 and body and "id" in body:
                self.lost += 1
                self._ask("first", "explain", {"text": self.texts[0], "edges": 600})
                return None
            raise RuntimeError(f"{kind or path}: {error.code} {error.read()!r}") from error
        if kind is not None:
            self.seconds[kind].append(time.perf_counter() - started)
        return json.loads(answer) if answer else {}


def sample_memory(process: psutil.Process, end: float, sizes: list[float]) -> None:
    """Note the resident size of a process, in MiB, until a moment of `time.monotonic`."""
    while time.monotonic() < end:
        sizes.append(process.memory_info().rss / 2**20)
        time.sleep(SECONDS_BETWEEN_SAMPLES)


def wait_until_up(address: str) -> None:
    """Wait for the first answer of a server that starts."""
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}health", timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError("the server did not start")


def report(clients: list[Client], sizes: list[float], args: argparse.Namespace) -> tuple[str, bool]:
    """The tables, and whether memory was flat."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    busy: Counter[str] = Counter()
    for client in clients:
        busy += client.busy
        for kind, values in client.seconds.items():
            seconds[kind] += values
    third = len(sizes) // 3
    before = max(sizes[third : 2 * third])
    last = max(sizes[2 * third :])
    flat = last <= FLAT * before
    lines = [
        "# The explorer under load",
        "",
        "See benchmarks/server_load.py for what is measured. Clients send without a pause, so that requests wait for",
        "each other: seconds include the wait in the queues.",
        "",
        provenance(minutes=args.minutes, clients=args.clients, seed=args.seed, tokens=LENGTHS, threads=1)
        + (f"- {args.note}\n" if args.note else ""),
        "| request | answers | p50 s | p95 s | 429 |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in sorted(seconds):
        if kind != "first":
            p50, p95 = np.quantile(seconds[kind], [0.5, 0.95])
            lines.append(f"| {kind} | {len(seconds[kind])} | {p50:.3f} | {p95:.3f} | {busy[kind]} |")
    lost = sum(client.lost for client in clients)
    verdict = "flat" if flat else "NOT flat"
    lines += [
        "",
        f"{lost} requests named a result that had been dropped for its memory (404), as the limit of",
        f"{KEPT_BYTES >> 20} MB makes happen. No other error.",
        "",
        f"Memory of the server: {sizes[0]:.0f} MiB at first; at most {before:.0f} MiB in the second third of the time",
        f"and {last:.0f} MiB in the last: {verdict}.",
        "",
    ]
    return "\n".join(lines), flat


def main() -> None:
    """Run the server and its clients, and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="a line for the result, such as what else the machine did")
    parser.add_argument("--no-write", action="store_true", help="print the result only")
    args = parser.parse_args()
    tokenizer = gaflow.Explainer().runner.tokenizer
    texts = [review(tokenizer, length) for length in LENGTHS]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    process.start()
    address = f"http://127.0.0.1:{port}/api/v1/"
    sizes: list[float] = []
    try:
        wait_until_up(address)
        end = time.monotonic() + 60 * args.minutes
        clients = [Client(address, texts, args.seed + number) for number in range(args.clients)]
        threads = [threading.Thread(target=client.run, args=(end,)) for client in clients]
        for thread in threads:
            thread.start()
        sample_memory(psutil.Process(process.pid), end, sizes)
        for thread in threads:
            thread.join()
    finally:
        process.terminate()
    for client in clients:
        if client.error is not None:
            raise client.error
    text, flat = report(clients, sizes, args)
    print(text)
    if not args.no_write:
        print(write("server_load.md", text))
    if not flat:
        raise SystemExit("memory grew")


if __name__ == "__main__":
    main()
