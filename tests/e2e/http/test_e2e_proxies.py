"""Behind the proxies that people have: other stacks of HTTP/2 and TLS speak to the server, for
clients that speak to them."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import graphs
import needs
import numpy as np
import pytest
import tls
import tritonclient.grpc as triton
import web
import wire
from conftest import Serve
from harness import Server, eventually
from http2 import Http2
from operating import free_port
from tritonclient import utils

pytestmark = pytest.mark.once  # what others say is received by the same code on both

X: Final = np.arange(32, dtype="<f4").reshape(2, 16)
BLOCK: Final = np.random.default_rng(1).random((1, 150_000), np.float32)
WAIT_S: Final = 30

NGINX: Final = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    grpc_ssl_trusted_certificate {ca};
    grpc_ssl_verify on;
    grpc_ssl_name localhost;
    proxy_ssl_trusted_certificate {ca};
    proxy_ssl_verify on;
    proxy_ssl_name localhost;
    server {{
        listen 127.0.0.1:{front} http2;
        location /inference.GRPCInferenceService/ {{
            grpc_pass grpc{s}://127.0.0.1:{back};
        }}
        location / {{
            proxy_pass http{s}://127.0.0.1:{back};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""
CADDY: Final = """
{{
    admin off
    auto_https off
    persist_config off
    storage file_system {folder}/storage
    servers {{
        protocols h1 h2 h2c
    }}
}}
http://127.0.0.1:{front} {{
    reverse_proxy {scheme}://localhost:{back} {{
        header_up Host localhost:{back}
        {transport}
    }}
}}
"""
# HTTP/2 in front and behind; it asks for a certificate's name as well as for its authority.
ENVOY: Final = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {front}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {manager}
          stat_prefix: front
          codec_type: AUTO
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: /}}
                route: {{cluster: lumen, timeout: 0s, host_rewrite_literal: localhost}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": {kinds}.filters.http.router.v3.Router
  clusters:
  - name: lumen
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": {kinds}.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: lumen
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {back}}}}}}}
{transport}
"""
KINDS: Final = "type.googleapis.com/envoy.extensions"
MANAGER: Final = KINDS + ".filters.network.http_connection_manager.v3.HttpConnectionManager"
ENVOYS_TLS: Final = """
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": {kinds}.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context:
          alpn_protocols: [h2]
          validation_context:
            trusted_ca: {{filename: {ca}}}
            match_typed_subject_alt_names:
            - san_type: DNS
              matcher: {{exact: localhost}}
"""


def nginx(folder: Path, front: int, back: int, ca: str, is_tls: bool) -> list[str]:
    """The command of one in front of a port, as its settings in the folder say."""
    program = needs.program("nginx")
    path = folder / "nginx.conf"
    s = "s" if is_tls else ""
    path.write_text(NGINX.format(folder=folder, front=front, back=back, ca=ca, s=s))
    return [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(path)]


def caddy(folder: Path, front: int, back: int, ca: str, is_tls: bool) -> list[str]:
    """The same of Caddy, which speaks HTTP/2 to the server for all requests."""
    program = needs.program("caddy")
    path = folder / "Caddyfile"
    trust = f"transport http {{\n versions 2\n tls_trust_pool file {ca}\n }}"
    path.write_text(
        CADDY.format(
            folder=folder,
            front=front,
            back=back,
            scheme="https" if is_tls else "h2c",
            transport=trust if is_tls else "",
        )
    )
    return [program, "run", "--adapter", "caddyfile", "--config", str(path)]


def envoy(folder: Path, front: int, back: int, ca: str, is_tls: bool) -> list[str]:
    """The same of Envoy, which speaks HTTP/2 to the server, too."""
    program = needs.program("envoy")
    path = folder / "envoy.yaml"
    words = {"front": front, "back": back, "kinds": KINDS, "manager": MANAGER}
    transport = ENVOYS_TLS.format(ca=ca, kinds=KINDS) if is_tls else ""
    path.write_text(ENVOY.format(transport=transport, **words))
    flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
    return [program, "-c", str(path), *flags]


@contextlib.contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[None]:
    """A proxy that listens."""
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=said,
            env={**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)},
        )

    def listens() -> bool:
        assert process.poll() is None, (folder / "said").read_text()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), wire.TIMEOUT_S).close()
            return True
        return False

    try:
        eventually(listens, "the proxy")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)


def inputs(array: np.ndarray) -> list[Any]:
    made = triton.InferInput("x", list(array.shape), utils.np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return [made]


@pytest.fixture(params=[nginx, caddy, envoy])
def dial(
    serve: Serve, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[bool], contextlib.AbstractContextManager[tuple[Server, int]]]:
    """The server and the port of a proxy before it, with TLS between them or without."""

    @contextlib.contextmanager
    def proxied(is_tls: bool) -> Iterator[tuple[Server, int]]:
        files = tls.make(tmp_path / "tls", "localhost")
        models = [
            {"name": "double", "path": str(graphs.double(tmp_path / "a.onnx")), "max_rows": 64},
            {"name": "block", "path": str(graphs.double(tmp_path / "b.onnx", BLOCK.size, rows=1))},
        ]  # fmt: skip
        front = free_port()
        folder = tmp_path / "proxy"
        folder.mkdir()
        request.param(folder, front, 1, files.ca, is_tls)  # skips where there is no such program
        server = serve({"models": models, "server": {"tls": files.settings()}})
        back = tls.port_of(server) if is_tls else server.port
        command = request.param(folder, front, back, files.ca, is_tls)
        with running(command, folder, front):
            yield server, front

    return proxied


@pytest.mark.parametrize("is_tls", [False, True])
def test_requests_and_calls(
    dial: Callable[[bool], contextlib.AbstractContextManager[tuple[Server, int]]], is_tls: bool
) -> None:
    """Small and large, many at once, in streams, and those that fail."""
    with dial(is_tls) as (server, front):
        before = server.figures().io["requests"]
        with Http2(front) as link:
            requests = [web.infer("double", {"x": X + n}) for n in range(30)]
            for n, answer in enumerate(link.wait([link.send(one) for one in requests])):
                np.testing.assert_array_equal(answer.array("y"), 2 * (X + n))
            answer = link.query(web.infer("block", {"x": BLOCK}))
            np.testing.assert_array_equal(answer.array("y"), 2 * BLOCK)
            assert link.query(web.get("/v2/models/none")).code == 404
        with triton.InferenceServerClient(f"127.0.0.1:{front}") as client:
            assert client.is_server_ready()
            assert client.get_model_metadata("double").name == "double"
            for array, name in ((X, "double"), (BLOCK, "block")):
                found = client.infer(name, inputs(array)).as_numpy("y")
                np.testing.assert_array_equal(found, 2 * array)
            answers: queue.Queue[Any] = queue.Queue()

            def keep(result: Any, error: Any) -> None:
                answers.put((result, error))

            for n in range(50):
                client.async_infer("double", inputs(X + n), keep, request_id=str(n))
            client.start_stream(keep)
            for n in range(50, 60):
                client.async_stream_infer("double", inputs(X + n), request_id=str(n))
            for _ in range(60):
                result, error = answers.get(timeout=WAIT_S)
                assert error is None
                n = int(result.get_response().id)
                np.testing.assert_array_equal(result.as_numpy("y"), 2 * (X + n))
            client.stop_stream()
            with pytest.raises(utils.InferenceServerException, match="none"):
                client.infer("none", inputs(X))
        assert server.figures().io["requests"] >= before + 90
    server.wait_until_idle()
