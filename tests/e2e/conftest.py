"""Fixtures of the end-to-end tests: servers in processes of their own, models made on the spot.

`zoo` is one server with many small models, shared by all tests that do it no lasting harm; after
each of them it must be idle and its account must balance. A test that needs other settings starts
a server of its own with `serve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import graphs
import pytest
import tls
from harness import Server
from town import Town

Serve = Callable[..., Server]
ZOO_LARGE_COLUMNS = 1 << 17
ZOO_OUTPUT_BYTES = 64 << 10
ZOO_WIDE_COLUMNS = 16384
# Above 256 KiB a body is received another way (poll first).
ZOO_BLOCK_COLUMNS = 70000


@pytest.fixture(scope="session", autouse=True)
def _library_is_built(c_library: None) -> None:
    """All of them need it."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """XDG_CACHE_HOME of every process the tests start."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tls.Files:
    """A certificate and its authority, for servers that speak TLS."""
    return tls.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def model_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Notes a test's failure for `serve`."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed


@pytest.fixture
def serve(cache: Path, request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Starts servers; those still running at the end of a good test are stopped and checked."""
    servers: list[Server] = []

    def start(settings: dict[str, object], **rest: object) -> Server:
        server = Server(settings, cache, **rest)  # type: ignore[arg-type]
        servers.append(server)
        return server

    try:
        yield start
        for server in servers:
            if server.alive and not request.node.stash.get(_FAILED, False):
                server.stop()
    finally:
        for server in servers:
            server.kill()


def zoo_settings(folder: Path) -> dict[str, object]:
    """The models of the shared server, made anew."""
    floats = {"mean": [1.0, 2.0, 3.0], "scale": [0.5, 0.25, 2.0]}
    models: list[dict[str, object]] = [
        {"name": "double", "path": graphs.double(folder / "double.onnx"), "max_rows": 256},
        {"name": "echo", "path": graphs.echo(folder / "echo.onnx")},
        {"name": "tag", "path": graphs.tag(folder / "tag.onnx")},
        {"name": "dtypes", "path": graphs.dtypes(folder / "dtypes.onnx"), "max_rows": 64},
        {"name": "several", "path": graphs.several(folder / "several.onnx"), "max_rows": 64},
        {"name": "scalar", "path": graphs.scalar(folder / "scalar.onnx")},
        {"name": "nonzero", "path": graphs.nonzero(folder / "nonzero.onnx", 6)},
        {
            "name": "wide",
            "path": graphs.nonzero(folder / "wide.onnx", ZOO_WIDE_COLUMNS),
            "max_output_bytes": ZOO_OUTPUT_BYTES,
        },
        {"name": "reshape", "path": graphs.reshape(folder / "reshape.onnx")},
        {"name": "large", "path": graphs.large(folder / "large.onnx", ZOO_LARGE_COLUMNS)},
        {
            "name": "block",
            "path": graphs.double(folder / "block.onnx", ZOO_BLOCK_COLUMNS, rows=1),
        },
        {"name": "gather", "path": graphs.gather(folder / "gather.onnx")},
        {"name": "slow", "path": graphs.slow(folder / "slow.onnx")},
        {
            "name": "nhwc",
            "path": graphs.image(folder / "nhwc.onnx", graphs.FLOAT, ["n", 5, 7, 3]),
            "max_rows": 8,
            **floats,
        },
        {
            "name": "nchw",
            "path": graphs.image(folder / "nchw.onnx", graphs.FLOAT, [1, 3, 9, 11]),
            "channel_order": "bgr",
            **floats,
        },
        {
            "name": "nhwc_bytes",
            "path": graphs.image(folder / "nhwc_bytes.onnx", graphs.UINT8, ["n", 5, 7, 3]),
            "max_rows": 8,
        },
        {
            "name": "nchw_bytes",
            "path": graphs.image(folder / "nchw_bytes.onnx", graphs.UINT8, ["n", 3, 5, 7]),
            "channel_order": "bgr",
            "max_rows": 8,
        },
    ]
    for model in models:
        model["path"] = str(model["path"])
    return {
        "server": {"max_request_bytes": "1MiB", "arena_bytes": "128MiB"},
        "engine": {"thread_count": 2},
        "models": models,
    }


class _Zoo:
    def __init__(self, cache: Path, folder: Path) -> None:
        self._cache = cache
        self._settings = zoo_settings(folder)
        self.server: Server | None = None

    def running(self) -> Server:
        """The server; a new one where a test has killed it, so that one failure stays one."""
        if self.server is None or not self.server.alive:
            self.server = Server(self._settings, self._cache)
        return self.server


@pytest.fixture(scope="session")
def _zoo(cache: Path, model_files: Path) -> Iterator[_Zoo]:
    zoo = _Zoo(cache, model_files)
    yield zoo
    if zoo.server is not None and zoo.server.alive:
        zoo.server.stop()


@pytest.fixture
def zoo(_zoo: _Zoo) -> Iterator[Server]:
    """The shared server, idle before and after the test."""
    server = _zoo.running()
    yield server
    try:
        server.check_idle()
    except BaseException:
        # The next test gets a fresh one, or it would fail for this one's reasons.
        server.kill()
        raise


@pytest.fixture(scope="module")
def _town(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    here = Town(cache, zoo_settings(tmp_path_factory.mktemp("town")))
    yield here
    here.stop()


@pytest.fixture
def town(_town: Town) -> Iterator[Town]:
    before = _town.figures()
    _town.settled = False
    yield _town
    try:
        if not _town.settled:
            _town.settle(before, None)
    except BaseException:
        _town.replace()
        raise
