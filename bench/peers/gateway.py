"""`make gateway`: what a gateway adds: Lumen beside HAProxy, nginx, Envoy and others.

A developer's tool. The upstream, an nginx, answers each POST with the same small completion, in
OpenAI's form. In turns within a round, for 1, 16 and 256 connections: wrk asks the upstream itself,
and through each gateway. A line has the medians of the rounds: requests a second, p50 and p99, CPU
time a request of the gateway's processes, and their memory. All share the machine's cores, gateways
have one thread each: compare the lines with each other alone. With --tls the gateways speak TLS to
the upstream, with --http2 HTTP/2.

With --rate: so many requests a second of one connection (h2load), whatever they take.

With --streams: so many at a time, each an event every second that says when it was sent; how much
later a client has it, from the upstream itself and through Lumen. Client and upstream are Python,
whose own lateness the first figure is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.common.local_server import local_server
from bench.common.measure import memory_mib
from bench.peers import h2load, install, nginx, wrk
from bench.peers.install import PeerMissingError, environment
from bench.peers.servers import free_port, session, session_cpu_s, started
from bench.report.rules import amount, table
from lumen_uring.ring.certificates import make_certificate

PATH: Final = "/v1/chat/completions"
CONNECTIONS: Final = (1, 16, 256)
BODY: Final = b'{"model":"chat","messages":[{"role":"user","content":"hi there, how are you"}]}'
ANSWER: Final = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello there"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }
)
_HEADERS: Final = {"Content-Type": "application/json"}
_CORES: Final = frozenset(os.sched_getaffinity(0))
_OTHERS: Final = ("litellm[proxy]", "vllm-router")


def _settings(up: Upstream, folder: Path) -> dict[str, Any]:
    scheme = "https" if up.tls else "http"
    entry: dict[str, Any] = {
        "urls": [f"{scheme}://127.0.0.1:{up.port}"],
        "models": {"chat": "chat"},
        "http2": "always" if up.http2 else "never",
    }
    if up.tls:
        entry["ca"] = str(folder / "try.crt")
    return {"server": {"io_threads": 1, "metrics_port": 0}, "upstreams": {"up": entry}}


@dataclass(frozen=True)
class Upstream:
    """Where the upstream is, and what it speaks."""

    port: int
    tls: bool
    http2: bool


@contextmanager
def lumen(folder: Path, up: Upstream) -> Iterator[tuple[int, int]]:
    """Runs Lumen. Yields the leader of its session, and its port."""
    file = folder / "lumen.json"
    file.write_text(json.dumps(_settings(up, folder)))
    with local_server("--config", str(file)) as server:
        yield server.pid, server.port


@contextmanager
def haproxy(folder: Path, up: Upstream) -> Iterator[tuple[int, int]]:
    """Runs HAProxy; as above."""
    program = install.haproxy()
    own, ca = free_port(), folder / "try.crt"
    to = f"ssl verify required ca-file {ca} verifyhost localhost" if up.tls else ""
    if up.http2:
        to += " alpn h2" if up.tls else " proto h2"
    file = folder / "haproxy.cfg"
    file.write_text(
        "global\n  nbthread 1\n  maxconn 2000\ndefaults\n  mode http\n  timeout connect 1s\n"
        "  timeout client 600s\n  timeout server 600s\n  option http-keep-alive\n"
        f"frontend f\n  bind 127.0.0.1:{own}\n  default_backend b\nbackend b\n"
        f"  http-reuse always\n  server s 127.0.0.1:{up.port} {to}\n"
    )
    with started("haproxy", [program, "-f", str(file), "-db"], {}, _CORES) as process:
        process.wait_until(lambda: _answers(own))
        yield process.pid, own


@contextmanager
def nginx_proxy(folder: Path, up: Upstream) -> Iterator[tuple[int, int]]:
    """Runs nginx as a proxy; as above."""
    program = nginx.program()
    if program is None:
        raise PeerMissingError(f"{nginx.MISSING}.")
    if up.http2:
        raise PeerMissingError("nginx speaks HTTP/2 to upstreams from 1.29.4 on.")
    own, place = free_port(), folder / "proxy"
    place.mkdir()
    scheme = "https" if up.tls else "http"
    trust = (
        f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {folder}/try.crt; "
        "proxy_ssl_name localhost; proxy_ssl_session_reuse on;"
        if up.tls
        else ""
    )
    (place / "nginx.conf").write_text(
        nginx.frame(
            place,
            f"  upstream up {{ server 127.0.0.1:{up.port}; keepalive 300; "
            "keepalive_requests 1000000000; }\n"
            f"  server {{ listen 127.0.0.1:{own}; location / {{ proxy_pass {scheme}://up; "
            f'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; {trust}'
            " } }\n",
        )
    )
    command = [program, "-p", str(place), "-c", str(place / "nginx.conf"), "-e", "stderr"]
    with started("nginx", command, {}, _CORES) as process:
        process.wait_until(lambda: _answers(own))
        yield process.pid, own


@contextmanager
def envoy(folder: Path, up: Upstream) -> Iterator[tuple[int, int]]:
    """Runs Envoy; as above."""
    program = install.envoy()
    own = free_port()
    cluster: dict[str, Any] = {
        "name": "up",
        "connect_timeout": "1s",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "up",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _envoys(up.port)}}]}],
        },
    }
    if up.http2:
        options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        cluster["typed_extension_protocol_options"] = {
            options: {
                "@type": f"type.googleapis.com/{options}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    if up.tls:
        kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
        trust = {"trusted_ca": {"filename": str(folder / "try.crt")}}
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": kind,
                "sni": "localhost",
                "common_tls_context": {
                    "validation_context": trust,
                    "alpn_protocols": ["h2"] if up.http2 else ["http/1.1"],
                },
            },
        }
    filters = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{filters}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "i",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{filters}.http.router.v3.Router"},
            }
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "v",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "up"}}],
                }
            ]
        },
    }
    chain = {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    }
    document = {
        "static_resources": {
            "listeners": [{"address": _envoys(own), "filter_chains": [{"filters": [chain]}]}],
            "clusters": [cluster],
        }
    }
    file = folder / "envoy.json"
    file.write_text(json.dumps(document))
    command = [program, "-c", str(file), "--concurrency", "1", "-l", "error"]
    with started("envoy", command, {}, _CORES) as process:
        process.wait_until(lambda: _answers(own))
        yield process.pid, own


def _envoys(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


@contextmanager
def vllm_router(_folder: Path, up: Upstream) -> Iterator[tuple[int, int]]:
    """Runs vLLM's router; as above."""
    if up.tls or up.http2:
        raise PeerMissingError("vllm-router is measured over plain HTTP/1.1.")
    own, python = free_port(), environment("gateways", _OTHERS)
    command = [str(python.with_name("vllm-router")), "--host", "127.0.0.1", "--port", str(own),
               "--worker-urls", f"http://127.0.0.1:{up.port}"]  # fmt: skip
    with started("vllm-router", command, {}, _CORES) as process:
        process.wait_until(lambda: _answers(own))
        yield process.pid, own


@contextmanager
def litellm(folder: Path, up: Upstream) -> Iterator[tuple[int, int]]:
    """Runs LiteLLM's proxy with one worker; as above."""
    if up.tls or up.http2:
        raise PeerMissingError("LiteLLM is measured over plain HTTP/1.1.")
    own, python = free_port(), environment("gateways", _OTHERS)
    parameters = {
        "model": "openai/chat",
        "api_base": f"http://127.0.0.1:{up.port}/v1",
        "api_key": "unused",
    }
    file = folder / "litellm.yaml"
    settings = {"dangerously_permit_weak_or_unset_master_key": True}
    models = [{"model_name": "chat", "litellm_params": parameters}]
    file.write_text(json.dumps({"model_list": models, "general_settings": settings}))
    command = [str(python.with_name("litellm")), "--config", str(file), "--host", "127.0.0.1",
               "--port", str(own), "--num_workers", "1"]  # fmt: skip
    with started("litellm", command, {}, _CORES) as process:
        process.wait_until(lambda: _answers(own))
        yield process.pid, own


GATEWAYS: Final[Mapping[str, Any]] = {
    "Lumen": lumen,
    "HAProxy": haproxy,
    "nginx": nginx_proxy,
    "Envoy": envoy,
    "vLLM's router": vllm_router,
    "LiteLLM": litellm,
}


def _answers(port: int) -> bool:
    import http.client

    peer = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        peer.request("POST", PATH, BODY, _HEADERS)
        return peer.getresponse().status == 200
    except OSError:
        return False
    finally:
        peer.close()


@contextmanager
def upstream(folder: Path, tls: bool, http2: bool) -> Iterator[Upstream]:
    """Runs nginx as the upstream."""
    program = nginx.program()
    if program is None:
        raise PeerMissingError(f"{nginx.MISSING}.")
    port, place = free_port(), folder / "upstream"
    place.mkdir()
    speaks = (" ssl" if tls else "") + (" http2" if http2 else "")
    own = f"ssl_certificate {folder}/try.crt; ssl_certificate_key {folder}/try.key;" if tls else ""
    (place / "nginx.conf").write_text(
        nginx.frame(
            place,
            f"  server {{ listen 127.0.0.1:{port}{speaks}; {own}\n"
            f"    location / {{ return 200 '{ANSWER}'; }} }}\n",
        )
    )
    command = [program, "-p", str(place), "-c", str(place / "nginx.conf"), "-e", "stderr"]
    with started("nginx", command, {}, _CORES) as process:
        time.sleep(0.3)
        assert process.pid
        yield Upstream(port, tls, http2)


def compare(tls: bool, http2: bool, rounds: int, seconds: float, rate_rps: float) -> None:
    """Prints a table; rate_rps 0: as fast as they answer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cert, key = make_certificate(["DNS:localhost", "IP:127.0.0.1"])
        (folder / "try.crt").write_bytes(cert)
        (folder / "try.key").write_bytes(key)
        up = stack.enter_context(upstream(folder, tls, http2))
        places = {} if tls or http2 else {"direct": (0, up.port)}
        for name in GATEWAYS:
            place = _started(stack, name, folder, up)
            if place is not None:
                places[name] = place
        heads = ("", "connections", "requests/s", "p50, µs", "p99, µs", "CPU a request, µs", "MiB")
        rows = []
        for connections in CONNECTIONS[:1] if rate_rps else CONNECTIONS:
            # LiteLLM answers a hundred a second: more at a time only wait.
            asked = {
                name: place
                for name, place in places.items()
                if name != "LiteLLM" or (connections == 1 and not rate_rps)
            }
            found = _turns(asked, connections, rounds, seconds, rate_rps)
            for name, figures in found.items():
                memory = amount(_memory_mib(places[name][0])) if places[name][0] else ""
                used = amount(figures[3]) if places[name][0] else ""
                marks = [amount(one) for one in figures[:3]]
                rows.append([name, str(connections), *marks, used, memory])
        print(table(heads, rows))


def _started(stack: ExitStack, name: str, folder: Path, up: Upstream) -> tuple[int, int] | None:
    try:
        place: tuple[int, int] = stack.enter_context(GATEWAYS[name](folder, up))
    except PeerMissingError as error:
        print(f"without {name}: {error}", file=sys.stderr)
        return None
    return place


def _memory_mib(leader: int) -> float:
    return sum(memory_mib(pid)["Rss"] for pid in session(leader))


def _turns(
    places: Mapping[str, tuple[int, int]],
    connections: int,
    rounds: int,
    seconds: float,
    rate_rps: float,
) -> dict[str, list[float]]:
    """Of each place: requests a second, p50, p99, CPU a request in µs; medians of the rounds."""
    seen: dict[str, list[list[float]]] = {name: [] for name in places}
    for _ in range(rounds):
        for name, (pid, port) in places.items():
            before = session_cpu_s(pid) if pid else 0.0
            url = f"http://127.0.0.1:{port}{PATH}"
            if rate_rps:
                request = h2load.Request(url, BODY, _HEADERS, is_http1=True)
                paced = h2load.load(request, 1, 1, int(rate_rps * seconds), rate_rps)
                count = paced.good
                figures = [paced.throughput_rps, paced.p50_us, paced.p99_us]
            else:
                load = wrk.load(url, BODY, _HEADERS, connections, seconds)
                if load["errors"]:
                    raise RuntimeError(f"{name}: {load['errors']} of {load['requests']} failed")
                count = load["requests"]
                figures = [count / load["seconds"], load["p50"], load["p99"]]
            used = (session_cpu_s(pid) if pid else 0.0) - before
            seen[name].append([*figures, used * 1e6 / count])
    return {
        name: [statistics.median(column) for column in zip(*runs, strict=True)]
        for name, runs in seen.items()
    }


# ---- streams ----


async def _events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers a request with an event a second that says when it was sent."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    try:
        while True:
            event = b"data: %d\n\n" % time.monotonic_ns()
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(1)
    except ConnectionError:
        writer.close()


async def _follow(port: int, until_s: float, late: list[float]) -> None:
    """Reads a stream's events; how late each is, in µs."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode() + BODY)
    while time.monotonic() < until_s:
        line = await asyncio.wait_for(reader.readline(), 60)
        if line.startswith(b"data: "):
            late.append((time.monotonic_ns() - int(line[6:])) / 1000)
    writer.close()


async def _late(port: int, streams: int, seconds: float) -> list[float]:
    late: list[float] = []
    tasks = []
    until_s = time.monotonic() + seconds
    for _ in range(streams):  # spread over a second, as their events are from then on
        tasks.append(asyncio.create_task(_follow(port, until_s, late)))
        await asyncio.sleep(1 / streams)
    await asyncio.gather(*tasks)
    return sorted(late)


def _serve_events(port: int) -> None:
    async def main() -> None:
        server = await asyncio.start_server(_events, "127.0.0.1", port, backlog=4096)
        await server.serve_forever()

    asyncio.run(main())


def streams(count: int, seconds: float) -> None:
    """Prints how late events are, and what a stream costs."""
    import multiprocessing

    port = free_port()
    context = multiprocessing.get_context("spawn")
    source = context.Process(target=_serve_events, args=(port,), daemon=True)
    source.start()
    time.sleep(1)
    try:
        with tempfile.TemporaryDirectory() as directory:
            settings = _settings(Upstream(port, False, False), Path(directory))
            settings["upstreams"]["up"]["in_flight"] = 65536
            settings["server"]["arena_bytes"] = "2GiB"
            settings["engine"] = {"queue_capacity": 16384}
            file = Path(directory) / "lumen.json"
            file.write_text(json.dumps(settings))
            heads = ("", "streams", "late by p50, µs", "p99, µs", "max, µs")
            rows = []
            with local_server("--config", str(file)) as server:
                before = _memory_mib(server.pid)
                for name, at in (("direct", port), ("Lumen", server.port)):
                    late = asyncio.run(_late(at, count, seconds))
                    marks = (late[len(late) // 2], late[len(late) * 99 // 100], late[-1])
                    rows.append([name, str(count), *(amount(one) for one in marks)])
                grown = _memory_mib(server.pid) - before
            print(table(heads, rows))
            print(f"{grown * 1024 / count:.1f} KiB of Lumen's memory a stream")
    finally:
        source.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--tls", action="store_true", help="to the upstream")
    parser.add_argument("--http2", action="store_true", help="to the upstream")
    parser.add_argument("--rate", type=float, default=0, help="requests/s of one connection")
    parser.add_argument("--streams", type=int, default=0, help="so many streams instead")
    options = parser.parse_args()
    if options.streams:
        streams(options.streams, max(10.0, options.seconds))
        return 0
    if not wrk.found():
        print(f"{wrk.MISSING}.", file=sys.stderr)
        return 1
    if options.rate and not h2load.found():
        print(f"{h2load.MISSING}.", file=sys.stderr)
        return 1
    compare(options.tls, options.http2, options.rounds, options.seconds, options.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
