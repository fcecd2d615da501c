"""Flame graphs: from perf's text to a document, and what is said where perf is missing."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import stat
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import needs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stats import build

from lumen_uring.errors import MetricsError
from lumen_uring.metrics import profiling
from lumen_uring.metrics.facts import Facts
from lumen_uring.metrics.flamegraph import folded, parse_perf_script, svg
from lumen_uring.metrics.profiling import Profiler, refusal
from lumen_uring.metrics.server import MetricsServer

SCRIPT = """\
lumen-w/0
        7f1a2b3c4d5e MlasGemm (/opt/libonnxruntime.so)
        7f1a2b3c0000 operator()<a; b> (/opt/libonnxruntime.so)
            55d0c0de lm_infer (/x/liblumen_uring.so)

lumen-w/0
        7f1a2b3c4d5e MlasGemm (/opt/libonnxruntime.so)
        7f1a2b3c0000 operator()<a; b> (/opt/libonnxruntime.so)
            55d0c0de lm_infer (/x/liblumen_uring.so)

two words
    ffffffff81000000 [unknown] ([kernel.kallsyms])
        7f1a2b3c4d5e [unknown] (/opt/libc.so.6)

idle

"""
STACKS = {
    ("lumen-w/0", "lm_infer", "operator()<a: b>", "MlasGemm"): 2,
    ("two words", "[libc.so.6]", "[kernel.kallsyms]"): 1,
    ("idle",): 1,
}
SVG = "{http://www.w3.org/2000/svg}"
needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason=needs.reason("perf"))


def test_reads_what_perf_writes() -> None:
    assert parse_perf_script(SCRIPT) == STACKS
    assert parse_perf_script("") == {}
    assert parse_perf_script("# a comment\n\n\n") == {}


def test_folded_stacks() -> None:
    assert folded(STACKS).splitlines() == [
        "idle 1",
        "lumen-w/0;lm_infer;operator()<a: b>;MlasGemm 2",
        "two words;[libc.so.6];[kernel.kallsyms] 1",
    ]


def test_every_frame_has_its_share_and_a_tooltip() -> None:
    document = ElementTree.fromstring(svg(STACKS, 'a <b> & "c"'))
    assert document.tag == f"{SVG}svg"
    frames = document.findall(f"{SVG}g")
    titles = [frame.findtext(f"{SVG}title") for frame in frames]
    assert "all: 4 samples, 100.00 %" in titles
    assert "operator()<a: b>: 2 samples, 50.00 %" in titles
    assert len(titles) == 9
    at: dict[str, tuple[float, float, float]] = {}
    for frame, title in zip(frames, titles, strict=True):
        rect = frame.find(f"{SVG}rect")
        assert rect is not None
        assert title is not None
        x, y, width = (float(rect.attrib[name]) for name in ("x", "y", "width"))
        at[title.rpartition(": ")[0]] = (x, y, width)
    assert at["all"][2] == 1200
    assert at["MlasGemm"][2] == at["lm_infer"][2] == 600
    assert at["MlasGemm"][0] == at["lm_infer"][0]
    assert at["MlasGemm"][1] < at["lm_infer"][1] < at["lumen-w/0"][1] < at["all"][1]
    assert 'a &lt;b&gt; &amp; "c"' in svg(STACKS, 'a <b> & "c"')
    assert "<script" not in svg(STACKS, "")


def test_a_profile_without_samples_says_what_to_do() -> None:
    document = svg({}, "idle")
    ElementTree.fromstring(document)
    assert "0 samples" in document
    assert "Profile while requests come" in document
    assert "Profile while requests come" not in svg(STACKS, "busy")


@given(st.dictionaries(st.lists(st.text(max_size=5), max_size=6).map(tuple), st.integers(1, 9)))
def test_any_stacks_make_a_document(stacks: dict[tuple[str, ...], int]) -> None:
    ElementTree.fromstring(svg(stacks, "x"))


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    ElementTree.fromstring(svg(parse_perf_script(text), text))


def test_a_stack_without_end() -> None:
    ElementTree.fromstring(svg({tuple(f"f{level}" for level in range(5000)): 1}, "deep"))


def test_why_perf_would_not(tmp_path: Path) -> None:
    level = tmp_path / "paranoid"
    level.write_text("4\n")
    assert refusal("\nError:\nNo permission.\n", level).startswith(
        "perf was refused: Error. Set kernel.perf_event_paranoid to 1 or lower (here it is 4), or"
    )
    assert "no reason given" in refusal("", tmp_path / "none")


def frames_of(document: str) -> dict[str, tuple[float, float, float, str]]:
    """For each frame its x, y and width, and the name that is written in it."""
    found = {}
    for frame in ElementTree.fromstring(document).findall(f"{SVG}g"):
        rect = frame.find(f"{SVG}rect")
        title = frame.findtext(f"{SVG}title")
        assert rect is not None
        assert title is not None
        x, y, width = (float(rect.attrib[name]) for name in ("x", "y", "width"))
        found[title] = (x, y, width, frame.findtext(f"{SVG}text") or "")
    return found


def test_each_frame_lies_on_its_caller_and_beside_its_neighbours() -> None:
    stacks = {("t", "a", "x"): 3, ("t", "b", "y"): 6, ("t", "b"): 1, ("t", "c"): 2, ("u",): 12}
    document = svg(stacks, "a title")
    # 1200 wide, 24 samples: 50 each; a row is 17 high.
    expected = {
        "all: 24 samples, 100.00 %": (0, 99, 1200, "all"),
        "t: 12 samples, 50.00 %": (0, 82, 600, "t"),
        "a: 3 samples, 12.50 %": (0, 65, 150, "a"),
        "x: 3 samples, 12.50 %": (0, 48, 150, "x"),
        "b: 7 samples, 29.17 %": (150, 65, 350, "b"),
        "y: 6 samples, 25.00 %": (150, 48, 300, "y"),
        "c: 2 samples, 8.33 %": (500, 65, 100, "c"),
        "u: 12 samples, 50.00 %": (600, 82, 600, "u"),
    }
    assert frames_of(document) == expected
    assert 'width="1200" height="124"' in document
    assert ">24 samples; each" in document
    assert ">a title</text>" in document
    colours = [part.split('"')[0] for part in document.split('fill="hsl')[1:]]
    assert len(set(colours)) == len(expected)
    assert svg(stacks, "a title") == document


def test_names_are_shortened_to_their_frames() -> None:
    stacks = {("n" * 40,): 200, ("m" * 40,): 799, ("thin",): 1}
    shown = {title[0]: frame[3] for title, frame in frames_of(svg(stacks, "x")).items()}
    # 240 wide: room for 32 signs, of which two say that there is more.
    assert shown == {"a": "all", "n": "n" * 30 + "..", "m": "m" * 40, "t": ""}
    # Narrower than a fifth of a point: not drawn.
    drawn = frames_of(svg({("z",): 1, ("b",): 9999}, "x"))
    assert [title.partition(":")[0] for title in drawn] == ["all", "b"]


# ---- the page ----


def fake_perf(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    perf = directory / "perf"
    perf.write_text(f"#!{sys.executable}\nimport sys, time\n{text}\n")
    perf.chmod(perf.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(directory))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MetricsServer]:
    path = tmp_path / "stats"
    path.write_bytes(build())
    with closing(MetricsServer("127.0.0.1", 0)) as page_server:
        page_server.start(path, Facts("1", "1", 1, 1, 1), os.getpid())
        yield page_server


def ask(server: MetricsServer, query: str, method: str = "GET") -> tuple[int, str, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, f"/debug/pprof/profile{query}")
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read().decode()


WORKS = f"sys.stdout.write({SCRIPT!r}) if sys.argv[1] == 'script' else None"


def test_a_profile_as_a_picture_and_as_text(
    server: MetricsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_perf(tmp_path, monkeypatch, WORKS)
    status, content_type, body = ask(server, "?seconds=1")
    assert (status, content_type) == (200, "image/svg+xml")
    assert "MlasGemm: 2 samples" in body
    assert ask(server, "?seconds=1&format=folded") == (
        200,
        "text/plain; charset=utf-8",
        folded(STACKS),
    )


@pytest.mark.parametrize(
    "query",
    [
        "?seconds=0",
        "?seconds=61",
        "?seconds=x",
        "?seconds=",
        "?seconds=-1",
        "?seconds=1e1",
        "?seconds=9999999999",
        "?seconds=1&format=pdf",
    ],
)
def test_what_may_be_asked(server: MetricsServer, query: str) -> None:
    status, _type, body = ask(server, query)
    assert status == 400
    assert "expected" in body


def test_perf_that_is_missing_or_refused(
    server: MetricsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    status, _type, body = ask(server, "")
    assert status == 501
    assert "perf is not installed: install it" in body
    fake_perf(tmp_path, monkeypatch, "sys.exit('No permission to do that')")
    status, _type, body = ask(server, "?seconds=1")
    assert status == 501
    assert body.startswith("perf was refused: No permission to do that. Set kernel.perf_event")
    (tmp_path / "perf").write_text("#!/no/such/interpreter\n")
    status, _type, body = ask(server, "?seconds=1")
    assert status == 501
    assert "perf does not start" in body


def test_one_profile_at_a_time_and_none_after_the_end(
    server: MetricsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    fake_perf(tmp_path, monkeypatch, f"open({str(started)!r}, 'w').close(); time.sleep(50)")
    first: list[tuple[int, str, str]] = []
    thread = threading.Thread(target=lambda: first.append(ask(server, "?seconds=60")))
    thread.start()
    while not started.exists():
        thread.join(0.01)
        assert thread.is_alive()
    assert ask(server, "?seconds=1")[0] == 409
    server.close()
    thread.join(20)
    assert first[0][0] == 501
    assert server._profiler is not None
    with pytest.raises(MetricsError, match="ending"):
        server._profiler.profile(1)


def test_a_client_that_leaves_frees_the_profile(
    server: MetricsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    fake_perf(tmp_path, monkeypatch, f"open({str(started)!r}, 'w').close(); time.sleep(500)")
    with socket.create_connection(("127.0.0.1", server.port)) as leaves:
        leaves.sendall(b"GET /debug/pprof/profile?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not started.exists():
            threading.Event().wait(0.01)
        assert ask(server, "?seconds=1")[0] == 409
    fake_perf(tmp_path, monkeypatch, WORKS)
    while (status := ask(server, "?seconds=1")[0]) == 409:  # until its leaving is noticed
        threading.Event().wait(0.01)
    assert status == 200


def test_only_this_machine_may_ask(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from lumen_uring.metrics import server as metrics_server

    for peer, mine in (
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
    ):
        assert metrics_server._is_loopback(peer) is mine
    monkeypatch.setattr(metrics_server, "_is_loopback", lambda _peer: False)
    assert ask(server, "?seconds=1")[0] == 403


@needs_perf
def test_the_real_perf() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    profiler = Profiler(os.getpid())
    try:
        stacks = profiler.profile(1)
    except MetricsError as error:
        needs.absent("perf", str(error))
    finally:
        stop.set()
        thread.join()
        profiler.close()
    assert stacks
    ElementTree.fromstring(svg(stacks, "real"))


def test_what_perf_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which process, how often, for how long, and what of it is read."""
    asked = tmp_path / "asked"
    session = "os.getsid(0) == os.getpid()"
    say = f"print(sys.argv[1:], {session}, file=open({str(asked)!r}, 'a'))"
    fake_perf(tmp_path, monkeypatch, f"import os; {say}")
    assert Profiler(4321).profile(7) == {}
    record, script = asked.read_text().splitlines()
    place = record.split("'-o', '")[1].split("'")[0]
    command = ["record", "-q", "-B", "-N", "-F", "99", "-g"]
    command += ["-p", "4321", "-o", place, "--", "sleep", "7"]
    assert record == f"{command} True"
    assert script == f"['script', '-i', '{place}', '--no-inline', '-F', 'comm,ip,sym,dso'] True"
    assert not Path(place).parent.exists()  # nothing is left


def test_perf_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it has started with it."""
    started = tmp_path / "started"
    fake_perf(
        tmp_path,
        monkeypatch,
        "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; "
        f"time.sleep(500)']); open({str(started)!r}, 'w').write(str(child.pid)); time.sleep(500)",
    )
    monkeypatch.setattr(profiling, "_PATIENCE_S", 0.5)
    with pytest.raises(
        MetricsError, match=r"perf record did not end within 1\.5 s, for a profile of 1 s"
    ):
        Profiler(1).profile(1)
    if started.exists():  # a slow machine may not have come so far
        child = Path(f"/proc/{started.read_text()}/stat")
        with contextlib.suppress(OSError):  # it is gone altogether
            for _ in range(6000):
                if child.read_text().rpartition(")")[2].split()[0] == "Z":
                    return
                threading.Event().wait(0.01)
            raise AssertionError("what perf has started goes on")
