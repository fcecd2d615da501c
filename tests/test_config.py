"""Settings: every problem at once, each with its place; nothing ignored."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lumen_uring.config import load
from lumen_uring.errors import ConfigError
from lumen_uring.ring.config_struct import crossing, whole_range
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.keys import burst_of
from lumen_uring.settings.schema import Config
from lumen_uring.settings.sizes import format_size, parse_size
from lumen_uring.settings.without import without

ROOT = Path(__file__).resolve().parents[1]


def problems(path: Path | None, *overrides: str, models: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides, models)
    return str(caught.value).splitlines()


def write(directory: Path, text: str) -> Path:
    path = directory / "config.yaml"
    path.write_text(text)
    return path


def test_the_file_of_defaults_says_what_the_code_says() -> None:
    config = load()
    assert config.server == type(config.server)()
    assert config.engine == type(config.engine)()
    assert config.log == type(config.log)()
    (model,) = config.models
    assert model == type(model)(name="digits", path="builtin:digits")
    assert load(ROOT / "config.yaml") == config


def test_the_file_of_defaults_holds_every_key() -> None:
    written = yaml.safe_load((ROOT / "config.yaml").read_text())
    config = load()
    assert set(written) == set(type(config).model_fields)
    assert set(written["server"]) == set(type(config.server).model_fields)
    assert set(written["engine"]) == set(type(config.engine).model_fields)
    assert set(written["log"]) == set(type(config.log).model_fields)
    assert set(written["models"][0]) == set(type(config.models[0]).model_fields)


def test_the_page_of_settings_is_as_the_settings_are() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/settings_page.py"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    cure = ".venv/bin/python tools/settings_page.py > docs/SETTINGS.md"
    assert (ROOT / "docs/SETTINGS.md").read_text() == done.stdout, cure


def test_versions_of_one_name(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    text = "models:\n  - {{name: m, path: a.onnx}}\n  - {{name: 'm:{}', path: b.onnx}}\n"
    file.write_text(text.format(2))
    assert [(one.base, one.version) for one in load(file).models] == [("m", 1), ("m", 2)]
    file.write_text(text.format(1))
    with pytest.raises(ConfigError, match="another version of 'm', found 'm:1' beside 'm': both"):
        load(file)
    for wrong in ("m:0", "m:01", "m:x", "m:1:2", ":1", "m:"):
        file.write_text(f"models: [{{name: '{wrong}', path: a.onnx}}]")
        with pytest.raises(ConfigError, match="beside other versions of that name, found"):
            load(file)


def test_all_problems_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
server:
  port: 70000
  prot: 1
  io_backend: select
  max_request_bytes: 8XB
engine:
  queue_type: ring
  batch_size: 400
  telemetry_csv_path: 3
  queue_capacity: 1000
  thread_count: "2"
models:
  - name: a b
    path: x
    mean: [1, 2]
  - name: twin
    path: x
  - name: twin
  - 3
extra: 1
""",
    )
    found = problems(path)
    file = str(path)
    for line in [
        f"{file}:2 server.port: expected a port number, 0..65535, found 70000",
        f"{file}:4 server.io_backend: expected auto | io_uring | epoll, found 'select'",
        f"{file}:5 server.max_request_bytes: expected auto or a size such as 8MiB, 64 bytes to "
        "2GiB, found '8XB'",
        f"{file}:7 engine.queue_type: "
        "expected auto | mpmc | scq | spsc | naive | batched | inline, "
        "found 'ring'",
        f"{file}:8 engine.batch_size: expected a whole number, 1..256, found 400",
        f"{file}:9 engine.telemetry_csv_path: expected null, or the path of a file to write, "
        "found 3",
        f"{file}:10 engine.queue_capacity: expected a power of two, 2..32768, found 1000",
        f"{file}:11 engine.thread_count: expected auto or a whole number, 1..64, found '2'",
        f"{file}:13 models.0.name: expected 1 to 255 letters, digits, '_', '.' or '-'; and "
        "':' with a version, 1 to 4294967294, beside other versions of that name, found 'a b'",
        f"{file}:15 models.0.mean: expected a number or a list of three, found a list of 2",
        f"{file}:18 models.2.path: expected a file's path, or builtin:NAME, found nothing",
        f"{file}:18 models.2.name: expected a name of its own, found 'twin', "
        "the name of model 1 too",
        f"{file}:19 models.3: expected a mapping with a name and a path, found 3",
        f"{file}:20 extra: expected one of server, engine, log, repository, models, experts, "
        "ensembles, upstreams, fallbacks, traffic, budgets, traces, found the unknown key 'extra'",
    ]:
        assert line in found
    assert any(
        line.startswith(f"{file}:3 server.prot: expected one of name, host, port") for line in found
    )
    assert len(found) == 15


def test_a_key_written_twice_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path, "server:\n  port: 1\n  port: 2\nmodels: [{name: a, path: b}]\n")
    assert problems(path) == [
        f"{path}:3 server.port: expected each key once, found it again (first on line 2)"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", ":1: expected YAML"),
        ("- 1", "expected a mapping, found a list of 1"),
        ("&a {b: *a}", "expected YAML, found: an alias inside the value it names"),
        ("? [1]\n: 2", "found unhashable key"),
        ("a: " + "[" * 5000, "expected"),
        ("server: !!python/object:os.system {}", "could not determine a constructor"),
        ("\0", "expected YAML"),
    ],
)
def test_what_is_no_yaml(tmp_path: Path, text: str, says: str) -> None:
    assert says in "\n".join(problems(write(tmp_path, text)))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert problems(missing) == [
        f"{missing}: expected a readable file, found: No such file or directory."
    ]
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: \xe9\n")
    assert "expected UTF-8, found byte 0xe9 at offset 3" in problems(latin)[0]


def test_an_empty_file_has_no_models(tmp_path: Path) -> None:
    (line,) = problems(write(tmp_path, "# nothing\n"))
    assert line.endswith(
        "models: expected a list of 1..4096 models, each with a name and a path, found nothing"
    )


def test_empty_sections_mean_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "server:\nengine:\nmodels: [{name: a, path: b}]\n")
    assert load(path).server.port == 8000


@pytest.mark.parametrize("key", ["models.1", "models.1.path", "models.x", "server.keys.0.name"])
def test_an_override_of_what_is_not_there(key: str) -> None:
    """One model is there, number 0, and no key."""
    (line, *_rest) = problems(None, f"{key}=x")
    assert line.startswith(f"--set {key}: expected ")
    assert load(None, ["models.0.path=x"]).models[0].path == "x"
    (model,) = load(None, ["models.0={name: z, path: y}"]).models
    assert (model.name, model.path) == ("z", "y")
    hosts = ["server.hosts=[a, b, c]", "server.hosts.1=d"]
    assert load(None, hosts).server.hosts == ("a", "d", "c")
    (line,) = problems(None, *hosts, "server.hosts.3=e")
    assert line == "--set server.hosts.3: expected an index below 3, found '3'"


def test_overrides_and_their_places() -> None:
    config = load(None, ["engine.thread_count=2", "server.arena_bytes=1GiB", "models.0.scale=2"])
    assert config.engine.thread_count == 2
    assert config.server.arena_bytes == 1 << 30
    assert config.models[0].scale == (2.0, 2.0, 2.0)
    assert problems(
        None,
        "server.port=x",
        "nothing",
        "models.7.name=a",
        "a.b=1",
        "server.port.x=1",
        "engine.idle={",
    ) == [
        "--set: expected KEY=VALUE with a dotted KEY, found 'nothing'",
        "--set models.7.name: expected settings at models, found no '7' that could hold one",
        "--set server.port.x: expected settings at server.port, "
        "found no 'port' that could hold one",
        "--set engine.idle: expected a YAML value, found '{'",
        "--set server.port: expected a port number, 0..65535, found 'x'",
        "--set a: expected one of server, engine, log, repository, models, experts, "
        "ensembles, upstreams, fallbacks, traffic, budgets, traces, found the unknown key 'a'",
    ]


def test_model_options_replace_the_list_and_then_append() -> None:
    config = load(None, models=["a=builtin:digits", "b=dir/x=y.onnx"])
    assert [(model.name, model.path) for model in config.models] == [
        ("a", "builtin:digits"),
        ("b", "dir/x=y.onnx"),
    ]
    assert problems(None, models=("a=x", "a=y", "=z", "b")) == [
        "--model: expected NAME=PATH, found '=z'",
        "--model: expected NAME=PATH, found 'b'",
        "--model models.1.name: expected a name of its own, found 'a', the name of model 0 too",
    ]


@pytest.mark.parametrize(
    "override",
    [
        "server.port=true",
        "server.port=80.0",
        "server.port=-1",
        "server.host=localhost",
        "server.name=''",
        "server.name='a\"b'",
        'server.name="a\\\\b"',
        "server.name=it''s",
        "server.name=é",
        f"server.name={'x' * 65}",
        "server.unix_socket=''",
        "server.unix_socket=3",
        'server.unix_socket="a\\0b"',
        "server.unix_socket_mode=660",
        "server.unix_socket_mode='0888'",
        "server.unix_socket_mode='66'",
        "server.unix_socket_mode=01000",
        "server.unix_socket_mode=-1",
        "server.unix_socket_mode=true",
        "server.unix_socket_mode=rw",
        "server.io_threads=0",
        "server.io_threads=17",
        "server.drain_seconds=.nan",
        "server.drain_seconds=-1",
        "server.max_request_bytes=4GiB",
        "server.max_request_bytes=2147483649",
        "server.max_request_bytes=true",
        "server.default_timeout_ms=4294968",
        "server.max_in_flight=0",
        "server.max_in_flight=true",
        "server.overload=drop",
        "server.rate=-1",
        "server.rate=.inf",
        "server.rate=true",
        "server.hosts=example.org",
        "server.hosts=[.a]",
        "server.hosts=['a:80']",
        "server.keys=ada",
        "server.metrics_port=-1",
        "server.metrics_port=70000",
        "server.metrics_port=8000",
        "server.metrics_host=localhost",
        "server.agent_port=8000",
        "server.agent_port=70000",
        "server.overload_status=500",
        "server.orca=sometimes",
        "models.0.rate=-1",
        "models.0.labels=[a]",
        "engine.queue_capacity=1",
        "engine.queue_capacity=131072",
        "engine.queue_type=zip",
        "engine.batch_size=true",
        "engine.batch_delay_us=-1",
        "engine.idle=true",
        "engine.telemetry_csv_path=3",
        "log.level=loud",
        "log.format=xml",
        "log.path=3",
        "log.path=''",
        "models.0.scale=.inf",
        "models.0.scale=[1,2,1e39]",
        "models.0.mean=true",
        "models.0.intra_op_threads=0",
        'models.0.name="a\\n"',
        'models.0.path="a\\0b"',
        "models.0.path=",
        "models=[]",
        "server=3",
    ],
)
def test_values_out_of_range_name_the_option(override: str) -> None:
    (line,) = problems(None, override)
    assert line.startswith(f"--set {override.partition('=')[0]}: expected ")


def test_what_is_wrong_within_image_is_named() -> None:
    (line,) = problems(None, "models.0.image.preset=imagent")
    assert line.endswith(".preset: expected null | imagenet | squeezenet | yolo, found 'imagent'")
    (line,) = problems(None, "models.0.image.presett=yolo")
    assert "image.presett: expected one of preset, fit, " in line
    assert line.endswith("found the unknown key 'presett' (did you mean 'preset'?)")


def test_a_request_must_fit_the_arena() -> None:
    (line,) = problems(None, "server.arena_bytes=1MiB", "server.max_request_bytes=8MiB")
    assert line == (
        "--set server.arena_bytes: expected at least max_request_bytes (8388608 bytes), "
        "found 1048576"
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("12", 12),
        ("12B", 12),
        ("8MiB", 8 << 20),
        ("2MB", 2_000_000),
        ("1.5KiB", 1536),
        ("1 GiB", 1 << 30),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "8mib", "8M", "-1", "+1", "1e3", "0.3KiB", "８", " 8", "1.5", "0.5B", "8  B", "1."],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_size(text)


@given(st.integers(0, 2**63))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.text(max_size=20))
def test_any_text_as_size_gives_a_size_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_size(text) >= 0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["queue_type=spsc", "thread_count=2"], "1 with queue_type spsc, found 2: spsc has a"),
        (["queue_type=batched"], "2 or more with queue_type batched, found 1"),
        (["queue_type=inline", "batch_size=4", "batch_delay_us=50"], "0 with queue_type inline"),
        (["batch_delay_us=50"], "0 without batches, found 50, but no model has a batch_size"),
    ],
)
def test_settings_that_contradict_each_other(settings: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, [f"engine.{setting}" for setting in settings])
    assert problem in str(caught.value)


def test_contradictions_are_reported_together() -> None:
    overrides = ["engine.queue_type=spsc", "engine.thread_count=3", "server.io_threads=2"]
    with pytest.raises(ConfigError) as caught:
        load(None, [*overrides, "server.arena_bytes=1MiB", "server.max_request_bytes=8MiB"])
    assert len(str(caught.value).splitlines()) == 3


SHA = "ab" * 32
KEYS = f"""\
server:
  burst: 5
  keys:
    - name: ada
      sha256: {SHA}
      models: [digits, none]
      burst: 3
    - name: ada
      sha256: {SHA.upper()}
      rate: -1
    - name: a b
      sha256: xyz
      admin: 1
    - name: both
      sha256: {"cd" * 32}
      token_env: LUMEN_TEST_UNSET
    - name: neither
    - name: unset
      token_env: LUMEN_TEST_UNSET
    - name: odd
      token_env: LUMEN_TEST_ODD
      models: []
      colour: red
    - 3
models:
  - name: digits
    path: x
    burst: 2
"""


ENSEMBLE = """\
server:
  keys: [{name: ada, sha256: "%064d", models: [both, digits]}]
models: [{name: digits, path: "builtin:digits"}]
ensembles:
  - {name: both, steps: [{model: digits}]%s}
"""


def test_keys_may_name_ensembles(tmp_path: Path) -> None:
    assert load(write(tmp_path, ENSEMBLE % (1, ""))).server.keys[0].models == ("both", "digits")
    [found] = problems(write(tmp_path, ENSEMBLE % (1, ", burst: 3")))
    assert ":5 ensembles.0.burst: expected none without a rate, found 3 beside no rate" in found


def test_all_problems_of_keys_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUMEN_TEST_UNSET", raising=False)
    monkeypatch.setenv("LUMEN_TEST_ODD", "two words")
    path = write(tmp_path, KEYS)
    found = problems(path)
    for line, rest in [
        (2, "server.burst: expected none without a rate, found 5 beside no rate"),
        (6, "server.keys.0.models: expected names of models (digits), found 'none'"),
        (7, "server.keys.0.burst: expected none without a rate, found 3 beside no rate"),
        (8, "server.keys.1.name: expected a name of its own, found 'ada', the name of key 0 too"),
        (9, "server.keys.1.sha256: expected a token of its own, found that of key 0 again"),
        (10, "server.keys.1.rate: expected requests a second, 0 (no limit) to 1e9, found -1"),
        (11, "server.keys.2.name: expected 1 to 63 letters, digits, '_', '.' or '-', found 'a b'"),
        (
            12,
            "server.keys.2.sha256: expected 64 hexadecimal digits, as `lumen key` prints them, "
            "found 'xyz'",
        ),
        (13, "server.keys.2.admin: expected true | false, found 1"),
        (
            14,
            "server.keys.3: expected one of sha256, token_env and subject, found sha256 and "
            "token_env",
        ),
        (17, "server.keys.4: expected one of sha256, token_env and subject, found none"),
        (
            19,
            "server.keys.5.token_env: expected a variable that holds the token, "
            "found LUMEN_TEST_UNSET, which is not set",
        ),
        (
            21,
            "server.keys.6.token_env: expected a variable that holds the token, "
            "found LUMEN_TEST_ODD, with other characters than letters, digits and signs",
        ),
        (22, "server.keys.6.models: expected all, or a list of models' names, found an empty list"),
        (24, "server.keys.7: expected a mapping with a name and a sha256, found 3"),
        (28, "models.0.burst: expected none without a rate, found 2 beside no rate"),
    ]:
        assert f"{path}:{line} {rest}" in found
    assert any(
        line.startswith(f"{path}:23 server.keys.6.colour: expected one of") for line in found
    )
    assert len(found) == 17


def test_a_burst_of_tokens_is_beside_their_rate(tmp_path: Path) -> None:
    key = f"{{name: a, sha256: {SHA}, rate: 1, token_burst: 4}}"
    path = write(tmp_path, f"server: {{keys: [{key}]}}\n")
    expected = "token_burst: expected none without a token_rate, found 4 beside no token_rate"
    assert any(expected in line for line in problems(path))


def test_keys_as_they_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMEN_TEST_TOKEN", "s3cret")
    path = write(
        tmp_path,
        "server:\n"
        "  rate: 10\n"
        "  hosts: [lumen.example.org, '*']\n"
        "  keys:\n"
        f"    - {{name: ada, sha256: {SHA}, models: [a], rate: 0.5, admin: true}}\n"
        "    - {name: bob, token_env: LUMEN_TEST_TOKEN}\n"
        "models: [{name: a, path: b, rate: 3, burst: 1}]\n",
    )
    server = load(path).server
    ada, bob = server.keys
    assert ada.digest() == bytes.fromhex(SHA)
    assert (ada.models, ada.admin, bob.models) == (("a",), True, "all")
    assert bob.digest() == hashlib.sha256(b"s3cret").digest()
    assert server.hosts == ("lumen.example.org", "*")


def test_the_metrics_page_has_a_port_of_its_own() -> None:
    (line,) = problems(None, "server.metrics_port=8000")
    assert line == ("--set server.metrics_port: expected another port than server.port, found 8000")
    assert load(None, ["server.metrics_port=0", "server.port=0"]).server.metrics_port == 0


@pytest.mark.parametrize(
    "other",
    [
        "server.port=8443",
        "server.grpc_port=8443",
        "server.metrics_port=8443",
        "server.tls={port: 8443, certificates: [{cert: a.pem, key: a.key}]}",
    ],
)
def test_an_agent_check_has_a_port_of_its_own(other: str) -> None:
    (line,) = problems(None, "server.agent_port=8443", other)
    assert line == "--set server.agent_port: expected a port of its own, found 8443"


def test_a_unix_socket(tmp_path: Path) -> None:
    assert load(None).server.unix_socket is None
    assert load(None).server.unix_socket_mode == 0o660
    path = write(
        tmp_path,
        "server:\n  unix_socket: /run/lumen.sock\n  unix_socket_mode: 0600\n"
        "models: [{name: a, path: b}]\n",
    )
    server = load(path).server
    assert (server.unix_socket, server.unix_socket_mode) == ("/run/lumen.sock", 0o600)
    for written in ("0666", "'0666'", "0o666", "'666'"):
        assert load(None, [f"server.unix_socket_mode={written}"]).server.unix_socket_mode == 0o666


def test_a_unix_sockets_path_is_measured_in_bytes(tmp_path: Path) -> None:
    expected = "expected null, or a path of 1 to 107 bytes such as /run/lumen/lumen.sock"
    assert load(None, [f"server.unix_socket=/{'x' * 106}"]).server.unix_socket is not None
    for name in ("x" * 107, "\u00e9" * 54):
        (line,) = problems(None, f"server.unix_socket=/{name}")
        assert line.startswith(f"--set server.unix_socket: {expected}, found '/")
    path = write(
        tmp_path,
        f"server:\n  unix_socket: /{'x' * 200}\n  unix_socket_mode: 660\n  port: x\n"
        "models: [{name: a, path: b}]\n",
    )
    found = problems(path)
    assert len(found) == 3
    assert any(line.startswith(f"{path}:2 server.unix_socket: {expected}") for line in found)
    mode = "expected an octal mode with its leading zero such as 0660, 0000 to 0777, found 660"
    assert f"{path}:3 server.unix_socket_mode: {mode}" in found


def test_the_environment_overrides_the_file_and_options_the_environment(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "server:\n  port: 1\n  hosts: [a.example]\n  idle_timeout_seconds: 7\n"
        "models: [{name: a, path: /b}, {name: c, path: /d}]\n",
    )
    variables = {
        "LUMEN_SERVER__PORT": "9000",
        "LUMEN_SERVER__HOSTS": "[b.example, c.example]",
        "LUMEN_SERVER__MAX_REQUEST_BYTES": "1MiB",
        "LUMEN_LOG__LEVEL": "debug",
        "LUMEN_MODELS__1__PATH": "e.onnx",
        "LUMEN_ENGINE__THREAD_COUNT": "",  # as a program passes on what is not set
        "LUMEN_SERVICE_HOST": "10.0.0.1",  # as Kubernetes sets it
        "OTHER__PORT": "3",
    }
    config = load(path, ["server.max_request_bytes=2MiB"], (), variables)
    assert (config.server.port, config.server.hosts) == (9000, ("b.example", "c.example"))
    assert (config.server.max_request_bytes, config.log.level) == (2 << 20, "debug")
    assert (config.server.idle_timeout_seconds, config.engine.thread_count) == (7, "auto")
    assert [model.path for model in config.models] == ["/b", "e.onnx"]
    assert load(path).server.port == 1
    several = {"LUMEN_MODELS": "[{name: x, path: y.onnx}]", "LUMEN_MODELS__0__RATE": "2"}
    (model,) = load(path, (), (), several).models
    assert (model.name, model.path, model.rate) == ("x", "y.onnx", 2)
    (model,) = load(path, (), ["z=/w"], several).models
    assert (model.name, model.rate) == ("z", 0)


def test_problems_in_the_environment_name_the_variable(tmp_path: Path) -> None:
    path = write(tmp_path, "models: [{name: a, path: b}]\n")
    with pytest.raises(ConfigError) as caught:
        load(
            path,
            (),
            (),
            {
                "LUMEN_SERVER__PORT": "x",
                "LUMEN_SEVER__PORT": "1",
                "LUMEN_SERVER__": "1",
                "LUMEN_MODELS__7__NAME": "z",
                "LUMEN_ENGINE__IDLE": "{",
            },
        )
    assert str(caught.value).splitlines() == [
        "LUMEN_ENGINE__IDLE engine.idle: expected a YAML value, found '{'",
        "LUMEN_MODELS__7__NAME models.7.name: expected settings at models, "
        "found no '7' that could hold one",
        "LUMEN_SERVER__: expected a name such as LUMEN_SERVER__PORT",
        "LUMEN_SERVER__PORT server.port: expected a port number, 0..65535, found 'x'",
        "LUMEN_SEVER__PORT sever: expected one of server, engine, log, repository, models, "
        "experts, ensembles, upstreams, fallbacks, traffic, budgets, traces, "
        "found the unknown key 'sever' (did you mean 'server'?)",
    ]


def test_paths_of_a_file_are_relative_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of options and of the environment to the working directory."""
    folder = tmp_path / "etc"
    folder.mkdir()
    path = write(
        folder,
        "server: {unix_socket: s.sock}\nengine: {telemetry_csv_path: ../t.csv}\n"
        "log: {path: /var/l.log}\n"
        "models:\n  - {name: a, path: a.onnx, labels: a.txt}\n"
        "  - {name: b, path: 'builtin:digits'}\n  - {name: c, path: ~/c.onnx}\n"
        "  - {name: d, path: d.onnx, labels: d.txt}\n",
    )
    config = load(path, ["models.3.path=d.onnx"])
    assert config.server.unix_socket == f"{folder}/s.sock"
    assert config.engine.telemetry_csv_path == f"{folder}/../t.csv"
    assert config.log.path == "/var/l.log"
    assert [(model.path, model.labels) for model in config.models] == [
        (f"{folder}/a.onnx", f"{folder}/a.txt"),
        ("builtin:digits", None),
        ("~/c.onnx", None),
        ("d.onnx", f"{folder}/d.txt"),
    ]
    config = load(path, ["server.unix_socket=o.sock"], ["m=m.onnx"], {"LUMEN_LOG__PATH": "e.log"})
    assert (config.server.unix_socket, config.log.path) == ("o.sock", "e.log")
    assert config.models[0].path == "m.onnx"
    monkeypatch.chdir(folder)
    assert load("config.yaml").models[0].path == "a.onnx"


def test_every_path_of_a_file_is_relative_to_it(tmp_path: Path) -> None:
    """Also those of sections that few have."""
    path = write(
        tmp_path,
        "budgets: {path: b.json, models: {e: {requests_per_day: 5}}}\n"
        "models: [{name: d, path: 'builtin:digits'}]\n"
        "ensembles: [{name: e, labels: e.txt, steps: [{model: d}]}]\n",
    )
    config = load(path)
    assert config.budgets.path == f"{tmp_path}/b.json"
    assert config.ensembles[0].labels == f"{tmp_path}/e.txt"
    given = load(path, ["budgets.path=b.json", "ensembles.0.labels=e.txt"])
    assert (given.budgets.path, given.ensembles[0].labels) == ("b.json", "e.txt")


def test_models_may_be_left_out_where_an_option_names_one(tmp_path: Path) -> None:
    path = write(tmp_path, "server: {port: 1}\n")
    assert load(path, (), ["a=b.onnx"]).models[0].name == "a"


def test_what_runs_one_version_of_a_model_goes_with_the_model() -> None:
    """Where a model cannot be served, none of its versions is there to run."""
    entries = [
        {"name": "stays", "steps": [{"model": "digits"}]},
        {"name": "goes", "steps": [{"model": "b:2"}]},
    ]
    ensembles = Config.model_validate({"ensembles": entries}).ensembles
    config = load().model_copy(update={"ensembles": ensembles})
    left = without(config, [Broken("b", "it is no model")])
    assert [one.name for one in left.ensembles] == ["stays"]
    reasons = {one.name: one.reason for one in left.broken}
    assert reasons["goes"] == "it runs 'b:2', which cannot be served"


def test_merge_keys(tmp_path: Path) -> None:
    """`<<` takes the keys of another mapping over, and those written beside it win."""
    path = write(
        tmp_path,
        "models:\n"
        "  - &a {name: a, path: /x, rate: 1, burst: 2}\n"
        "  - &b\n    <<: *a\n    name: b\n    path: /y\n"
        "  - <<: [*b, *a]\n    name: c\n",
    )
    assert [(m.name, m.path, m.rate, m.burst) for m in load(path).models] == [
        ("a", "/x", 1, 2),
        ("b", "/y", 1, 2),
        ("c", "/y", 1, 2),
    ]
    path.write_text(
        "models:\n  - &a {name: a, path: /x, rate: much}\n  - <<: *a\n    name: b\n    name: c\n"
    )
    assert [line.removeprefix(f"{path}:") for line in problems(path)] == [
        "5 models.1.name: expected each key once, found it again (first on line 4)",
        "2 models.0.rate: expected requests a second, 0 (no limit) to 1e9, found 'much'",
        "2 models.1.rate: expected requests a second, 0 (no limit) to 1e9, found 'much'",
    ]


@pytest.mark.parametrize("text", ["1e9", "1E9", "1e+9", "1.0e9", "10e8", "1000000000"])
def test_numbers_with_an_exponent(text: str) -> None:
    """YAML 1.1 takes most of these for texts."""
    assert load(None, [f"server.rate={text}"]).server.rate == 1e9
    assert load(None, ["models.0.scale=4e-3"]).models[0].scale == (4e-3, 4e-3, 4e-3)


# The least and the most of every number. What a person writes as a size, a rate or a mode is one.
# Settings that C knows are added below: tests/test_library.py compares them with lumen_config.h.
LIMITS: dict[str, tuple[float, float]] = {
    "server.unready_seconds": (0, 3600),
    "server.drain_seconds": (0, 3600),
    "server.rate": (0, 1e9),
    "server.metrics_port": (0, 65535),
    "server.agent_port": (0, 65535),
    "models.0.width": (1, 64),
    "models.0.isolation_memory": (0, 1 << 40),
    "models.0.isolation_hang_seconds": (0, 86400),
    "models.0.intra_op_threads": (1, 256),
    "models.0.mean": (-3.4028234663852886e38, 3.4028234663852886e38),
    "models.0.scale": (-3.4028234663852886e38, 3.4028234663852886e38),
    "models.0.max_rows": (0, 4294967295),
    "models.0.max_output_bytes": (0, 4294967295),
    "models.0.batch_size": (1, 256),
    "models.0.batch_delay_us": (0, 4294967294),
    "models.0.max_queued": (0, 4294967295),
    "models.0.queue_timeout_us": (0, 2**64 - 1),
    "models.0.rate": (0, 1e9),
    "models.0.burst": (1, 4294967295),
}
# The least of what may be `auto`, where it is no 1.
WORDED = {"max_request_bytes": 64, "arena_bytes": 64 << 10}
for _section, _name, _field in crossing():
    _limits = whole_range(_field)
    _is_word = get_origin(_field.annotation) is Literal or _field.annotation is bool
    if _limits is not None and not _is_word:
        # Where C's 0 is a word or null, a person's least number is 1.
        _least = _limits[0] if _field.annotation is int else WORDED.get(_name, 1)
        LIMITS[f"{_section}.{_name}"] = (_least, _limits[1])
# Other settings that a value needs beside it.
BESIDE = {
    "models.0.isolation_memory": ["models.0.isolation=process"],
    "models.0.isolation_hang_seconds": ["models.0.isolation=process"],
    "server.burst": ["server.rate=1"],
    "models.0.burst": ["models.0.rate=1"],
    "server.max_request_bytes": ["server.arena_bytes=1024GiB"],
    "server.arena_bytes": ["server.max_request_bytes=64"],
    "engine.batch_delay_us": ["engine.batch_size=2"],
    "models.0.batch_delay_us": ["engine.batch_size=2"],
    "server.metrics_port": ["server.port=1"],
    "server.agent_port": ["server.port=1"],
}


def test_every_number_has_its_limits_in_the_table() -> None:
    config = load()
    sections = {"server": config.server, "engine": config.engine, "models.0": config.models[0]}
    numbers = {
        f"{name}.{key}"
        for name, section in sections.items()
        for key, field in type(section).model_fields.items()
        if any(kind in str(field.annotation) for kind in ("int", "float"))
        and get_origin(field.annotation) is not dict
        and not str(field.annotation).endswith("...]")
    }
    assert numbers == set(LIMITS)


@pytest.mark.parametrize("key", LIMITS)
def test_a_number_exactly_at_its_limits_and_beyond(key: str) -> None:
    least, most = LIMITS[key]
    is_float = key.endswith(("rate", "mean", "scale", "unready_seconds", "drain_seconds"))
    for value in (least, most):
        config = load(None, [*BESIDE.get(key, []), f"{key}={value!r}"])
        found: Any = config
        for step in key.split("."):
            found = found[int(step)] if step.isdecimal() else getattr(found, step)
        assert found == ((value,) * 3 if key.endswith(("mean", "scale")) else value)
    for beyond in (least, -1), (most, 1):
        value, sign = beyond
        step = abs(value) * 1e-6 + 1e-6 if is_float else 1
        (line, *_rest) = problems(None, *BESIDE.get(key, []), f"{key}={value + sign * step!r}")
        assert line.startswith(f"--set {key}: expected ")


def test_sizes_of_free_dimensions(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "models:\n- name: bert\n  path: x\n  max_dims: {sequence: 384, 'x[2]': 2147483647}\n"
        "  fix_dims:\n    height: 1\n",
    )
    (model,) = load(path).models
    assert model.max_dims == {"sequence": 384, "x[2]": 2147483647}
    assert model.fix_dims == {"height": 1}
    assert load().models[0].max_dims == load().models[0].fix_dims == {}
    (model,) = load(path, ["models.0.max_dims.sequence=8", "models.0.fix_dims={a.b: 2}"]).models
    assert model.max_dims == {"sequence": 8, "x[2]": 2147483647}
    assert model.fix_dims == {"a.b": 2}
    (model,) = load(path, environment={"LUMEN_MODELS__0__FIX_DIMS__WIDTH": "7"}).models
    assert model.fix_dims == {"height": 1, "width": 7}
    name = "\u00e4" * 127
    assert load(None, [f"models.0.max_dims={{{name}: 1}}"]).models[0].max_dims == {name: 1}


DIMS = "a mapping of dimensions' names (1 to 255 bytes) to whole numbers, 1..2147483647, found "


@pytest.mark.parametrize("key", ["max_dims", "fix_dims"])
def test_sizes_of_free_dimensions_that_are_none(tmp_path: Path, key: str) -> None:
    for written, place, found in (
        ("{a: 3, height: 0}", ".height", "0"),
        ("{height: 2147483648}", ".height", "2147483648"),
        ("{height: -1}", ".height", "-1"),
        ("{height: 2.0}", ".height", "2.0"),
        ("{height: true}", ".height", "True"),
        ("{height: tall}", ".height", "'tall'"),
        ("{height: null}", ".height", "null"),
        ("{height: {a: 1}}", ".height", "a mapping"),
        ("{'': 1}", ".", "the name ''"),
        ('{"a\\0b": 1}', ".a\0b", r"the name 'a\x00b'"),
        ("[height]", "", "a list of 1"),
        ("null", "", "null"),
        ("224", "", "224"),
    ):
        path = write(tmp_path, f"models:\n- name: m\n  path: x\n  {key}: {written}\n")
        assert problems(path) == [f"{path}:4 models.0.{key}{place}: expected {DIMS}{found}"]
    long = "x" * 256
    (line,) = problems(None, f"models.0.{key}={{{long}: 1}}")
    assert line.startswith(f"--set models.0.{key}.{long}: expected {DIMS}the name 'xxx")


def test_a_free_dimension_with_two_sizes(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "models:\n- name: m\n  path: x\n  max_dims: {h: 4, w: 5}\n  fix_dims:\n    w: 6\n",
    )
    assert problems(path) == [
        f"{path}:6 models.0.fix_dims.w: expected a dimension that max_dims does not name, "
        "found 6 beside 5 in max_dims"
    ]


def test_lists_and_names_at_their_limits(tmp_path: Path) -> None:
    models = [f"m{number}=x" for number in range(4097)]
    assert len(load(None, (), models[:4096]).models) == 4096
    assert "a list of 1..4096 models" in problems(None, models=tuple(models))[0]
    for count, most, entry in (
        ("hosts", 32, "h{number}.example"),
        ("keys", 256, "{{name: k{number}, sha256: '{number:064x}'}}"),
    ):
        entries = [entry.format(number=number) for number in range(most + 1)]
        few = f"server.{count}=[{', '.join(entries[:most])}]"
        assert len(getattr(load(None, [few]).server, count)) == most
        (line,) = problems(None, f"server.{count}=[{', '.join(entries)}]")
        assert f"a list of at most {most} " in line
    for name in ("x" * 255, "A-z_0.9"):
        assert load(None, (), [f"{name}=x"]).models[0].name == name
    for name in ("x" * 256, "a/b", "\u00e4"):
        assert "expected 1 to 255 letters" in problems(None, models=(f"{name}=x",))[0]
    host = "a" * 253
    assert load(None, [f"server.hosts=[{host}]"]).server.hosts == (host,)
    # What Compose calls a service, and nginx an upstream.
    for good in ("my_api", "lumen-1", "-a", "a-", "_x_", "a.b_c"):
        assert load(None, [f"server.hosts=[{good}]"]).server.hosts == (good,)
    for bad in ("a" * 254, ".a", "a.", "a:1", "a/b", "a b", "ä"):
        assert problems(None, f"server.hosts=[{bad}]")
    path = tmp_path / "config.yaml"
    path.write_bytes(b"#" * ((1 << 20) - 1) + b"\xff")
    assert problems(path) == [f"{path}: expected UTF-8, found byte 0xff at offset 1048575."]
    path.write_bytes(b"#" * ((1 << 20) + 1))
    assert problems(path) == [f"{path}: expected at most 1048576 bytes, found more."]


@pytest.mark.parametrize(
    ("overrides", "models", "problem"),
    [
        (["queue_type=batched"], ["models.0.batch_size=4"], "2 or more with queue_type batched"),
        (["queue_type=batched", "batch_size=2"], [], None),
        (["batch_delay_us=5"], ["models.1.batch_size=2"], None),
        (["batch_delay_us=5"], ["models.0.batch_size=1"], "0 without batches"),
        (["batch_delay_us=5", "batch_size=2"], ["models.0.batch_size=1"], None),
        (["queue_type=inline", "batch_size=2"], [], None),
        (["queue_type=inline", "thread_count=2"], [], None),
        (["queue_type=inline", "thread_count=2"], ["server.io_threads=2"], None),
        (
            ["queue_type=inline", "thread_count=2"],
            ["server.io_threads=3"],
            "auto with queue_type inline, whose I/O threads are its workers, "
            "found 2 beside server.io_threads 3",
        ),
        (["queue_type=spsc", "thread_count=1"], ["server.io_threads=1"], None),
        (["queue_type=mpmc", "thread_count=2"], ["server.io_threads=3"], None),
    ],
)
def test_which_settings_go_together(
    overrides: list[str], models: list[str], problem: str | None
) -> None:
    chosen = [*(f"engine.{one}" for one in overrides), *models]
    if problem is None:
        load(None, chosen, ["a=x", "b=y"])
    else:
        (line,) = problems(None, *chosen, models=("a=x", "b=y"))
        assert f"expected {problem}" in line


def test_ports_that_may_be_equal_and_a_request_as_large_as_the_arena() -> None:
    config = load(None, ["server.port=0", "server.metrics_port=0", "server.arena_bytes=64KiB"])
    assert (config.server.port, config.server.arena_bytes) == (0, 64 << 10)


def test_a_burst_of_nothing_is_two_problems() -> None:
    assert [burst_of(rate, 5) for rate in (0, 0.5, 9)] == [0, 5, 5]
    assert [burst_of(rate, None) for rate in (0, 0.5, 1, 1.01, 9)] == [0, 1, 1, 2, 9]
    found = problems(None, "server.burst=0", "models.0.burst=0", "models.0.rate=1")
    assert len(found) == 3
    assert "server.burst: expected none without a rate, found 0 beside no rate" in found[2]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server:\n  on: true\n", ":2 server.on: "),
        ("8000: 3\n", ":1 8000: "),
        ("~: 3\n", ":1 ~: "),
        ("models: [{name: d, path: x, no: 3}]\n", ":1 models.0.no: "),
    ],
)
def test_a_key_that_yaml_takes_for_another_value_is_a_name(
    tmp_path: Path, text: str, line: str
) -> None:
    path = write(tmp_path, text)
    found = [one for one in problems(path) if one.startswith(f"{path}{line}")]
    key = line.split()[-1].rstrip(":").rpartition(".")[-1]
    assert len(found) == 1
    assert f"found the unknown key {key!r}" in found[0]


def test_versions_of_traffic_are_numbers_though_keys_are_texts(tmp_path: Path) -> None:
    one = "models: [{name: 'm:1', path: x}, {name: 'm:2', path: x}]\n"
    config = load(write(tmp_path, one + "traffic: {m: {versions: {1: 95, '2': 5}}}\n"))
    assert config.traffic["m"].versions == {1: 95, 2: 5}
    bad = write(tmp_path, one + "traffic: {m: {versions: {01: 95, 2: 5}}}\n")
    assert problems(bad)[0].startswith(f"{bad}:2 traffic.m.versions")


def test_a_dimension_may_have_the_name_that_yaml_takes_for_a_number(tmp_path: Path) -> None:
    config = load(write(tmp_path, "models: [{name: d, path: x, fix_dims: {1: 3, on: 2}}]\n"))
    assert config.models[0].fix_dims == {"1": 3, "on": 2}


def test_a_name_that_is_no_text_is_told(tmp_path: Path) -> None:
    for name in ("[x]", "{x: 1}"):
        path = write(tmp_path, f"server: {{}}\nmodels: [{{name: {name}, path: builtin:digits}}]\n")
        (line,) = problems(path)
        assert line.startswith(f"{path}:2 models.0.name: expected 1 to 255 letters")


def test_an_unknown_model_of_the_last_expert_is_told(tmp_path: Path) -> None:
    text = (
        "models: [{name: d, path: builtin:digits}]\n"
        "experts: [{name: e, feature: variance, "
        "experts: [{model: d, below: 1.0}, {model: typo}]}]\n"
        "budgets: {path: b, models: {e: {requests_per_day: 5}}}\n"
    )
    path = write(tmp_path, text)
    found = f"{path}:2 experts.0.experts.1.model: expected the name of a model (d), found 'typo'"
    assert problems(path) == [found]


@pytest.mark.parametrize(
    "place", ["models.0.path", "models.0.labels", "log.path", "engine.telemetry_csv_path"]
)
def test_a_path_that_no_file_can_have_is_told(place: str) -> None:
    (line,) = problems(None, f"{place}=a/{'x' * 300}/b")
    assert line.startswith(f"--set {place}: expected ")
    assert line.endswith(", with a name of 300 bytes, more than 255")
    (line,) = problems(None, f"{place}={'x/' * 2500}")
    assert line.endswith(", a path of 5000 bytes, more than 4095")


def test_a_home_folder_of_nobody_is_a_path_that_is_not_there(tmp_path: Path) -> None:
    load(write(tmp_path, "models: [{name: d, path: ~nobody-of-this-name/x}]\n"))
    path = write(tmp_path, "repository: {paths: [~nobody-of-this-name/x]}\n")
    assert problems(path)[0].startswith("~nobody-of-this-name/x: expected a folder of models")


def test_the_nearest_source_of_a_value_is_named(tmp_path: Path) -> None:
    """An option that sets a part of what the environment set as a whole, and the reverse."""
    path = write(tmp_path, "log: {access_path: '-', path: ''}\nmodels: [{name: a, path: ''}]\n")
    assert load(path, ["log.path=x", "models.0.path=x"]).log.access_path == "-"
    assert [line.partition(" ")[0] for line in problems(path)] == [f"{path}:1", f"{path}:2"]
    variables = {"LUMEN_MODELS": "[{name: b, path: y, rate: much, max_rows: all}]"}
    with pytest.raises(ConfigError) as caught:
        load(path, ["log.path=x", "models.0.rate=many"], (), variables)
    assert [" ".join(line.split()[:2]) for line in str(caught.value).splitlines()] == [
        "LUMEN_MODELS models.0.max_rows:",
        "--set models.0.rate:",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"), (1, "1B"), (1023, "1023B"), (1024, "1KiB"), (1025, "1025B"),
        (1536 << 10, "1536KiB"), (1 << 20, "1MiB"), ((1 << 30) - (1 << 20), "1023MiB"),
        (1 << 30, "1GiB"), (1 << 40, "1024GiB"), (10**6, "1000000B"),
    ],
)  # fmt: skip
def test_how_a_size_is_written(size: int, text: str) -> None:
    assert format_size(size) == text


def test_each_unit_of_a_size() -> None:
    units = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    for unit, size in units.items():
        assert parse_size(f"3{unit}") == 3 * size
        assert parse_size(f"2.0 {unit}") == 2 * size
