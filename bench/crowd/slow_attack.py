"""Slow native clients, for slow.py: a process of its own that costs next to no CPU time.

One thread and one selector. Each connection does one small thing a second, spread over it: sends a
byte of a header, of a body, or of a body's end, or reads a byte of replies it asked for. Whoever is
cut off comes back a second later. Prints a line of JSON once all have been connected, and one with
what became of them when its stdin ends. It must never send a request whose answer would be work for
a model: what is measured is slowness, not load.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = ("header", "body", "most", "read", "never")
_REQUEST: Final = struct.Struct("<4sBBHQIIIHH")
_INFER, _DESCRIBE = 1, 3
_OK: Final = 0
_STEP_S: Final = 0.01
_KEPT_BACK: Final = 100  # bytes of a body of which most is sent at once
_SENDERS: Final = ("header", "body", "most")
_ASKED: Final = 400  # descriptions that a reader asks for: no socket takes all of them
_RECEIVE_BYTES: Final = 1 << 16
_PER_SOURCE: Final = 8000  # connections from one address of 127.0.0.0/8


def frame(kind: int, payload_bytes: int = 0, encoding: int = 0, model: int = 0) -> bytes:
    """A request's header."""
    return _REQUEST.pack(b"LMN1", kind, encoding, model, 1, payload_bytes, 0, 0, 0, 0)


@dataclass(slots=True)
class Member:
    """One connection, or the place of one."""

    kind: str
    sock: socket.socket | None = None
    data: bytes = b""
    sent: int = 0


@dataclass(slots=True)
class Attack:
    """All of them, and what became of them so far."""

    options: argparse.Namespace
    members: list[Member]
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    connects: int = 0
    failed: int = 0
    cut: int = 0
    refusals: int = 0
    answers: int = 0

    def connect(self, index: int) -> None:
        """Connects a member, and lets it say what it says at once."""
        member, options = self.members[index], self.options
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if member.kind in ("read", "never"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(2)
        try:
            sock.bind((f"127.0.1.{1 + index // _PER_SOURCE}", 0))
            sock.connect(("127.0.0.1", options.port))
        except OSError:
            self.failed += 1
            sock.close()
            return
        sock.setblocking(False)
        self.connects += 1
        member.sock, member.sent = sock, 0
        if member.kind == "header":
            member.data = frame(_INFER, options.body_bytes, options.encoding, options.model) * 1000
        elif member.kind in ("body", "most"):
            member.data = bytes(options.body_bytes)
            self.send(member, frame(_INFER, options.body_bytes, options.encoding, options.model))
            if member.kind == "most" and member.sock is not None:
                member.sent = self.send(member, member.data[:-_KEPT_BACK])
        else:
            self.send(member, frame(_DESCRIBE) * _ASKED)
        if member.sock is not None and member.kind in _SENDERS:
            self.selector.register(sock, selectors.EVENT_READ, index)

    def send(self, member: Member, data: bytes) -> int:
        """Sends what the socket takes; returns how much that was."""
        assert member.sock is not None
        try:
            return member.sock.send(data)
        except BlockingIOError:
            pass
        except OSError:
            self.end(member)
        return 0

    def end(self, member: Member) -> None:
        """Notes that the server has cut a member off."""
        assert member.sock is not None
        self.cut += 1
        if member.sock in self.selector.get_map():
            self.selector.unregister(member.sock)
        member.sock.close()
        member.sock = None

    def step(self, index: int) -> None:
        """What a member does once a second."""
        member = self.members[index]
        if member.sock is None:
            self.connect(index)
        elif member.kind in _SENDERS:
            member.sent += self.send(member, member.data[member.sent : member.sent + 1])
        else:
            # One that never reads looks whether it is still connected, all the same.
            flags = socket.MSG_PEEK if member.kind == "never" else 0
            try:
                if not member.sock.recv(1, flags):
                    self.end(member)
            except BlockingIOError:
                pass
            except OSError:
                self.end(member)

    def answered(self, index: int) -> None:
        """The server said something, or ended the connection."""
        member = self.members[index]
        if member.sock is None:
            return
        try:
            said = member.sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self.end(member)
        elif said[:4] == b"LMR1":
            status = struct.unpack_from("<H", said, 4)[0]
            self.answers += status == _OK
            self.refusals += status != _OK

    def run(self) -> None:
        """Attacks until stdin ends."""
        count, at, told = len(self.members), 0, False
        began_s = time.monotonic()
        self.selector.register(sys.stdin, selectors.EVENT_READ, -1)
        while True:
            due = int((time.monotonic() - began_s) / self.options.period * count)
            for number in range(at, min(due, at + count)):
                self.step(number % count)
            at = max(at, due)
            if at >= count and not told:
                told = True
                print(json.dumps(self.figures()), flush=True)
            for key, _events in self.selector.select(_STEP_S):
                if key.data < 0:
                    return
                self.answered(key.data)

    def figures(self) -> dict[str, float]:
        """What became of them so far."""
        spent = os.times()
        return {
            "open": sum(member.sock is not None for member in self.members),
            **{name: getattr(self, name) for name in
               ("connects", "failed", "cut", "refusals", "answers")},
            "cpu_s": round(spent.user + spent.system, 3),
        }  # fmt: skip


def main() -> int:
    """Attacks as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kinds", default="body", help=f"some of {', '.join(KINDS)}, in turn")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two bytes")
    parser.add_argument("--model", type=int, default=0, help="its index")
    parser.add_argument("--encoding", type=int, default=0)
    parser.add_argument("--body-bytes", type=int, default=256)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kinds = options.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"--kinds: expected some of {', '.join(KINDS)}, found {unknown[0]!r}")
    members = [Member(kinds[n % len(kinds)]) for n in range(options.connections)]
    attack = Attack(options, members)
    attack.run()
    print(json.dumps(attack.figures()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
