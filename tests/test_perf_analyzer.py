"""perf_analyzer.py: what it reads, what it says when something is missing, one real run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import needs
import pytest

from bench.peers import perf_analyzer
from bench.peers.perf_analyzer import Figures, MissingError, Way

SAID = """*** Measurement Settings ***
Request concurrency: 1
  Client:
    Request count: 10893
    Throughput: 11943.3 infer/sec
  Server:
    Inference count: 43576
    Execution count: 10894
    Successful request count: 10894
    Avg request latency: 107 usec (overhead 13 usec + queue 29 usec)
"""
FILE = """Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,\
Server Compute Input,Server Compute Infer,Server Compute Output,Client Recv,p50 latency,\
p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait
1,11943.3,69,138,29,19,18,26,0,281,363,397,1128,304,69,225

"""


def test_what_it_says_is_read() -> None:
    assert perf_analyzer.figures(SAID, FILE) == Figures(
        client_requests=10893, server_inferences=43576, server_requests=10894,
        inferences_per_s=11943.3, latency_us=304, p99_us=1128, queue_us=29, infer_us=18,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "file", "problem"),
    [
        (SAID.partition("  Server:")[0], FILE, "no server's section"),
        (SAID, FILE.splitlines()[0], "no server's section"),
        (SAID.replace("Inference count: 43576", "Inference count: 0"), FILE, "is 0"),
        (SAID.replace("Successful", "Failed"), FILE, "is not said"),
        (SAID, FILE.replace("Server Queue", "Queue"), "the CSV has no 'Server Queue'"),
    ],
)
def test_what_is_not_there_is_a_failure(said: str, file: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        perf_analyzer.figures(said, file)


def test_the_table() -> None:
    figures = perf_analyzer.figures(SAID, FILE)
    lines = perf_analyzer.report(
        [("digits", Way("batch"), figures), ("mlp", Way("json"), "exit status 99")]
    ).splitlines()
    assert "| 11,943 | 304 | 1,128 | 29 | 18 | 10,894 of 10,893 |" in lines[2]
    assert lines[3].startswith("| mlp | json | failed |")


def test_what_cannot_be_installed_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def refuse(command: list[str], *_rest: object, **_more: object) -> object:
        return subprocess.CompletedProcess(command, 1, "", "no route to host\n")

    monkeypatch.setattr(perf_analyzer, "_run", refuse)
    assert perf_analyzer.main([]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("perf_analyzer cannot be run: tritonclient==2.47.0 could not be fetched")
    assert "no route to host" in said


@pytest.mark.usefixtures("c_library")
def test_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Where `make perf-analyzer` has fetched the program."""
    if not (perf_analyzer.place() / "tritonclient").is_dir():
        needs.absent("perf_analyzer")
    try:
        perf_analyzer.install()
    except MissingError as error:
        needs.absent("perf_analyzer", str(error))
    status = perf_analyzer.main(["--models", "digits", "--ways", "async"])
    printed = capsys.readouterr()
    assert status == 0, printed.err
    assert "| digits | async |" in printed.out
