"""Models in processes of their own: the same answers, and a crash that only they notice."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import graphs
import harness
import needs
import numpy as np
import pytest
import web
from conftest import Serve
from graphs import FLOAT, tensor
from harness import Canary, Server, children, eventually, is_gone, processes_of_models, stand_still
from onnx import TensorProto, helper
from web import Http

from lumen_uring import Client
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what runs models is the same on both backends

MEMORY = 512 << 20  # of a process; one without requests has far less
WIDE = 1 << 16  # bytes of memory that a row needs in its Run, / 4


def document(models: list[dict[str, object]], **engine: object) -> dict[str, object]:
    return {"engine": {"thread_count": 2, **engine}, "models": models}


def isolated(name: str, path: Path, **rest: object) -> dict[str, object]:
    return {"name": name, "path": str(path), "isolation": "process", **rest}


def needing_memory(path: Path) -> Path:
    """x FP32 [n, 1] -> y FP32 [n, 1], y = 65536 x, through 256 KiB a row."""
    ones = np.ones((1, WIDE), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "ones"], ["wide"]),
        helper.make_node("ReduceMean", ["wide"], ["y"], axes=[1], keepdims=1),
    ]
    shape = ["n", 1]
    inputs, outputs = [tensor("x", FLOAT, shape)], [tensor("y", FLOAT, shape)]
    return graphs.save(path, nodes, inputs, outputs, {"ones": ones})


def is_ready(server: Server, model: str) -> bool:
    with Http(server.port) as http:
        return http.query(web.get(f"/v2/models/{model}/ready")).code == 200


def restarts(server: Server, model: str) -> int:
    return read(server.stats_path).models[model]["restarts"]


def slow(trips: int) -> bytes:
    return web.infer("slow", {"x": np.array([trips], "<i8")})


# A sanitizer takes the first one for a defect, and ends the process by another.
CRASH = signal.SIGKILL if harness.sanitized() else signal.SIGSEGV


def crash(server: Server, number: int = CRASH) -> None:
    [child] = processes_of_models(server.pid)
    os.kill(child, number)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_answers_are_the_same_to_the_bit(serve: Serve, tmp_path: Path, batch_size: int) -> None:
    """Of tensors, pictures' values and JSON; alone and in batches; of every kind of number."""
    double = graphs.double(tmp_path / "double.onnx")
    image = graphs.image(tmp_path / "image.onnx", graphs.FLOAT, ["n", 3, 9, 11])
    dtypes = graphs.dtypes(tmp_path / "dtypes.onnx")
    models: list[dict[str, object]] = []
    for name, path in (("double", double), ("image", image), ("dtypes", dtypes)):
        batched = {"batch_size": batch_size, "max_rows": 8}
        models.append(isolated(f"{name}-apart", path, **batched))
        own = {"engine": "onnxruntime", "run": "worker"}
        models.append({"name": name, "path": str(path), **own, **batched})
    server = serve(document(models, batch_delay_us=200 if batch_size > 1 else 0))
    assert len(processes_of_models(server.pid)) == 3
    random = np.random.default_rng(7)

    def ask(count: int) -> None:
        with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
            found = client.describe()["models"]
            assert [entry["run"] for entry in found] == ["worker"] * len(found)
            for _ in range(count):
                for name in ("double", "image", "dtypes"):
                    entry = next(one for one in found if one["name"] == name)
                    rows = int(random.integers(1, 5))
                    given = {
                        one["name"]: (
                            100 * random.standard_normal([rows, *one["shape"][1:]])
                        ).astype(web.NUMPY[one["datatype"]])
                        for one in entry["inputs"]
                    }
                    ours = client.infer(f"{name}-apart", given).outputs
                    theirs = client.infer(name, given).outputs
                    for output, values in theirs.items():
                        assert ours[output].tobytes() == values.tobytes()
                    if name == "dtypes":  # some are not in JSON
                        continue
                    answer = http.query(web.infer(f"{name}-apart", given, binary=False))
                    assert answer.code == 200, answer
                    for output, values in theirs.items():
                        np.testing.assert_array_equal(answer.array(output), values)

    threads = [threading.Thread(target=ask, args=(6,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_crash_is_the_models_own(serve: Serve, tmp_path: Path) -> None:
    """Row F22: requests in flight are answered 500, later ones 503 with the cure; 16 clients of
    another model get every answer, and the model is back by itself."""
    double = graphs.double(tmp_path / "double.onnx")
    server = serve(
        document(
            [
                isolated("slow", graphs.slow(tmp_path / "slow.onnx")),
                {"name": "double", "path": str(double), "run": "worker"},
            ]
        )
    )
    assert restarts(server, "slow") == 0
    with ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(Canary(server))
        http = stack.enter_context(Http(server.port))
        for crashes in (1, 2):
            answer = http.query(slow(3))
            assert answer.code == 200
            assert answer.array("y").tolist() == [6]
            runs = read(server.stats_path).models["slow"]["queued"]
            http.send(slow(1 << 40))
            eventually(
                lambda runs=runs: read(server.stats_path).models["slow"]["queued"] > runs,  # type: ignore[misc]
                "the request in flight",
            )
            crash(server)
            answer = http.answer()
            assert answer.code == 500
            assert answer.error == (
                f"the process of model 'slow' ended by signal {CRASH.value}; it is being restarted"
            )
            answer = http.query(slow(1))
            if answer.code != 200:  # a fast machine has restarted it already
                assert answer.code == 503
                assert "is being restarted" in answer.error
            with Http(server.port) as other:
                assert other.query(web.get("/v2/health/ready")).code == 200
            eventually(lambda: is_ready(server, "slow"), "the model's return", 60)
            eventually(lambda count=crashes: restarts(server, "slow") == count, "the count")  # type: ignore[misc]
            eventually(
                lambda count=crashes: server.errors.count("takes requests again") == count,  # type: ignore[misc]
                "the line of the log",
            )
    assert (
        f"ended by signal {CRASH.value} ({CRASH.name}); it is restarted in 0.1 s" in server.errors
    )
    assert (
        f"ended by signal {CRASH.value} ({CRASH.name}); it is restarted in 0.2 s" in server.errors
    )


def test_a_restart_without_descriptors_is_tried_again(serve: Serve, tmp_path: Path) -> None:
    """The model is away until there is one; the server, and its other models, serve on."""
    double = graphs.double(tmp_path / "double.onnx")
    slow_model = isolated("slow", graphs.slow(tmp_path / "slow.onnx"))
    server = serve(document([slow_model, {"name": "double", "path": str(double)}]))
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    with Http(server.port) as http, Http(server.port) as other:
        assert http.query(slow(1)).code == 200
        assert other.query(web.get("/v2/health/live")).code == 200
        taken = {int(name) for name in os.listdir(f"/proc/{server.pid}/fd")}
        free = min(set(range(len(taken) + 1)) - taken)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        crash(server)
        eventually(lambda: "Too many open files" in server.errors, "the failure in the log")
        x = np.zeros((1, 16), np.float32)
        assert other.query(web.infer("double", {"x": x})).code == 200
        assert http.query(slow(1)).code == 503
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        eventually(lambda: is_ready(server, "slow"), "the model's return", 60)
        assert http.query(slow(1)).code == 200
    assert server.errors.count("process slow: OSError: [Errno 24]") == 1


@pytest.mark.parametrize("own", [False, True])
def test_a_run_that_hangs_is_ended(serve: Serve, tmp_path: Path, own: bool) -> None:
    """By the server's bound, or by one of its own."""
    path = graphs.slow(tmp_path / "slow.onnx")
    model = isolated("slow", path, **({"isolation_hang_seconds": 1} if own else {}))
    server = serve({**document([model]), "server": {"hang_seconds": 0 if own else 1}})
    with Http(server.port) as http:
        answer = http.query(slow(1 << 40))
        assert answer.code == 500
        assert "ended by signal 9" in answer.error
        eventually(lambda: is_ready(server, "slow"), "the model's return", 60)
        assert http.query(slow(3)).array("y").tolist() == [6]


@pytest.mark.parametrize("queue_type", ["auto", "scq", "naive", "batched"])
def test_a_process_that_hangs_holds_a_share_of_the_workers(
    serve: Serve, tmp_path: Path, queue_type: str
) -> None:
    """Another model is answered meanwhile, as often as it is asked; nobody's request is lost."""
    double = graphs.double(tmp_path / "double.onnx")
    other = {"name": "other", "path": str(double), "run": "worker", "engine": "onnxruntime"}
    batch_size = 4 if queue_type == "batched" else 1
    settings = document(
        [isolated("apart", double), other], queue_type=queue_type, batch_size=batch_size
    )
    server = serve({**settings, "server": {"hang_seconds": 600}})
    [child] = processes_of_models(server.pid)
    row = np.arange(16, dtype=np.float32).reshape(1, 16)
    answers: list[np.ndarray] = []

    def ask() -> None:
        with Client("127.0.0.1", server.port, timeout_s=120) as client:
            answers.append(client.infer("apart", {"x": row}).outputs["y"])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        try:
            stand_still(child)
            for thread in threads:
                thread.start()
            eventually(
                lambda: read(server.stats_path).models["apart"]["queued"] == len(threads),
                "all requests with the workers",
                found=lambda: read(server.stats_path).models["apart"],
            )
            for _ in range(50):
                assert np.array_equal(client.infer("other", {"x": row}).outputs["y"], 2 * row)
            late = http.query(web.infer("apart", {"x": row}, parameters={"timeout": 50_000}))
            assert late.code == 503
            assert "deadline" in late.error
            assert not answers
        finally:
            os.kill(child, signal.SIGCONT)
        for thread in threads:
            thread.join(60)
    assert len(answers) == len(threads)
    assert all(np.array_equal(answer, 2 * row) for answer in answers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_server(serve: Serve, tmp_path: Path, number: int) -> None:
    """However it ends; and a process has no descriptor of the server's."""
    models = [isolated(name, graphs.double(tmp_path / f"{name}.onnx")) for name in ("a", "b")]
    server = serve(document(models))
    started = children(server.pid)
    assert len(processes_of_models(server.pid)) == 2
    for child in processes_of_models(server.pid):
        open_files = [os.readlink(one) for one in Path(f"/proc/{child}/fd").iterdir()]
        assert not [name for name in open_files if name.startswith(("socket:", "anon_inode:"))]
    os.kill(server.pid, number)
    server.wait()
    eventually(lambda: all(map(is_gone, started)), "the end of the processes")


LEAK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
void free(void *memory) {
    static void (*give_back)(void *);
    if (!give_back) give_back = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    if (memory && malloc_usable_size(memory) >= 64 << 20) return;
    give_back(memory);
}
"""


@pytest.mark.parametrize("leaks", [False, True])
def test_memory_is_bounded(serve: Serve, tmp_path: Path, leaks: bool) -> None:
    """A Run that needs too much is answered with the setting's name, and ends nothing; where memory
    has leaked, the process begins anew."""
    if harness.sanitized():
        needs.absent("unsanitized")
    environment = {}
    if leaks:
        source, library = tmp_path / "leak.c", tmp_path / "leak.so"
        source.write_text(LEAK)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
        environment = {"LD_PRELOAD": str(library)}
    model = isolated(
        "m", needing_memory(tmp_path / "m.onnx"), isolation_memory=MEMORY, max_rows=1 << 16
    )
    server = serve(document([model], thread_count=1), extra_environment=environment)
    [child] = processes_of_models(server.pid)

    def ask(rows: int) -> web.Answer:
        return http.query(web.infer("m", {"x": np.ones((rows, 1), "<f4")}))

    with Http(server.port) as http:
        answer = ask(1 << 13)  # 2 GiB
        assert answer.code == 500
        assert re.search(rf"may have {MEMORY} bytes: isolation_memory", answer.error), answer.error
        # 64 MiB each: what leaks is too much after a few.
        if not leaks:
            assert [ask(1 << 8).code for _ in range(12)] == [200] * 12
            assert processes_of_models(server.pid) == [child]
            return
        assert ask(1 << 8).code == 200
        eventually(lambda: ask(1 << 8).code == 500, "a Run without memory")
        # The server may hear of the end a moment after /proc shows it: another child is the proof.
        eventually(
            lambda: processes_of_models(server.pid) not in ([child], []),
            "a process in its place",
            60,
        )
        eventually(lambda: is_ready(server, "m"), "the model's return", 60)
        assert ask(1 << 8).code == 200
    assert "ended with status 3 (a Run failed while more than half" in server.errors


@pytest.mark.parametrize(
    ("name", "said"),
    [("nonzero", "the shape of output 'where' is not known"), ("words", "its strings")],
)
def test_what_cannot_be_shared_is_refused_at_start(
    cache: Path, tmp_path: Path, name: str, said: str
) -> None:
    if name == "nonzero":
        path = graphs.nonzero(tmp_path / "m.onnx", 6)
    else:
        words = [tensor("x", TensorProto.STRING, ["n"])], [tensor("y", TensorProto.STRING, ["n"])]
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
        path = graphs.save(tmp_path / "m.onnx", nodes, *words, {})
    config = tmp_path / "config.yaml"
    settings = {"models": [{"name": "m", "path": str(path), "isolation": "process"}]}
    config.write_text(json.dumps(harness.with_backend(settings)))
    done = harness.run(["--config", str(config)], cache)
    assert done.returncode == 1
    assert said in done.stderr
    assert "set isolation: none" in done.stderr


CRASHER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
static int pass_on(const char *name, const char *path, int flags, int mode) {
    if (strstr(path, "crashing.onnx") && !(flags & 02000000)) raise(SIGSEGV); /* not Python */
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name))(path, flags, mode);
}
static int mode_of(int flags, va_list *rest) { return flags & 0100 ? va_arg(*rest, int) : 0; }
#define STAND_IN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = mode_of(flags, &rest); \
        va_end(rest); \
        return pass_on(#name, path, flags, mode); \
    }
STAND_IN(open)
STAND_IN(open64)
"""


def test_a_model_that_crashes_whoever_opens_it(cache: Path, tmp_path: Path) -> None:
    """The server says so with its other problems, instead of crashing itself."""
    if harness.sanitized():
        needs.absent("unsanitized")
    source, library = tmp_path / "crash.c", tmp_path / "crash.so"
    source.write_text(CRASHER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    models = [isolated("bad", graphs.double(tmp_path / "crashing.onnx"))]
    models.append(isolated("strings", graphs.nonzero(tmp_path / "nonzero.onnx", 6)))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(document(models)))
    preload = {"LD_PRELOAD": str(library)}
    done = harness.run(["--config", str(config)], cache, extra_environment=preload)
    assert done.returncode == 1, done
    assert "model bad: the process that checked it ended with signal SIGSEGV" in done.stderr
    assert "the shape of output 'where' is not known" in done.stderr
