"""`make fresh`: tries a commit on machines with nothing but git, make, python3 and the archive.

Builds a minimal Debian root file system, clones the current commit into it and does there what
README says: `make run` with a prediction from a second process, then `make test`. Once as root with
`../shared` beside the clone where this machine has it, once as an ordinary user who has neither
sudo nor `../shared`; for that user root types the one line that `make run` prints.

Each machine is a folder with mount, process and network namespaces of its own: all its processes
and mounts end with it, whatever happens. Only the set-up reaches the host's network, with the
host's proxy, certificates, pip and apt settings; servers and tests see a loopback of their own, so
a port in use here disturbs nobody. Needs root and Python's standard library alone.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("git", "make", "python3")
USER: Final = "newcomer"
READY_S: Final = 60.0
# The machines' own places for what is taken along.
_CERTIFICATES: Final = "/etc/host-certificates.pem"
_BUNDLE: Final = "/tmp/lumen.bundle"
_TYPE_AS_ROOT: Final = re.compile(r"^As root, type: (.+)$", re.MULTILINE)
_SKIPPED: Final = re.compile(r"^skipped  (.+)$", re.MULTILINE)
_VARIABLES: Final = re.compile(r"(?i)^((https?|ftp|all|no)_proxy|pip_(?!cert$|config_file$).+)$")
# An address that is not the loopback's, for tests of peers on other machines (RFC 5737).
_OTHER_ADDRESS: Final = "192.0.2.1"
_SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8914, 0x8916, 1


class StepError(Exception):
    """A step of the trial went wrong; says which, and the end of what it printed."""


def say(text: str) -> None:
    print(text, flush=True)


# ---- what is taken along from this machine ----


def certificates() -> Path | None:
    """The file of certificates this machine trusts."""
    places = [os.environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")]
    places += [ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt"]
    return next((Path(place) for place in places if place and Path(place).is_file()), None)


def variables() -> dict[str, str]:
    """Proxies, pip's settings, and the certificates by every name that a program looks for."""
    taken = {name: value for name, value in os.environ.items() if _VARIABLES.match(name)}
    if certificates() is not None:
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT"):
            taken[name] = _CERTIFICATES
    return taken


def settings_files(home: str) -> dict[Path, str]:
    """Files of this machine's set-up, and where they belong on another (`home`: of its user)."""
    mine = Path.home()
    files = {
        Path("/etc/resolv.conf"): "/etc/resolv.conf",
        Path("/etc/pip.conf"): "/etc/pip.conf",
        Path("/etc/apt/auth.conf"): "/etc/apt/auth.conf",
        mine / ".netrc": f"{home}/.netrc",
        mine / ".pip/pip.conf": f"{home}/.pip/pip.conf",
        mine / ".config/pip/pip.conf": f"{home}/.config/pip/pip.conf",
    }
    for path in Path("/etc/apt/auth.conf.d").glob("*.conf"):
        files[path] = str(path)
    if named := os.environ.get("PIP_CONFIG_FILE"):
        files[Path(named)] = f"{home}/.config/pip/pip.conf"
    if (trusted := certificates()) is not None:
        files[trusted] = _CERTIFICATES
    return {source: target for source, target in files.items() if source.is_file()}


def package_folders() -> set[Path]:
    """Folders of this machine that pip's settings name: they are shown at the same place."""
    texts = [value for name, value in os.environ.items() if name.upper().startswith("PIP_")]
    texts += [path.read_text() for path in settings_files("/") if path.name == "pip.conf"]
    folders = set()
    for found in re.finditer(r"(?:(?<=\s)|(?<==)|(?<=file://)|^)(/[^\s,]+)", "\n".join(texts)):
        path = Path(found.group(1))
        if path.is_dir():  # an index's links lead to folders beside it
            folders.add(path.parent if path.name == "simple" else path)
    return folders


def apt_settings() -> str:
    """This machine's ways to the archive (proxies, retries, checks) as a file of apt.conf.d."""
    if shutil.which("apt-config") is None:
        return ""
    dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    ways = r"Acquire::(?!IndexTargets|Changelogs|Languages|CompressionTypes|cdrom|https::CaInfo)"
    lines = [line for line in dump.splitlines() if re.match(ways, line) and '""' not in line]
    if certificates() is not None:
        lines.append(f'Acquire::https::CaInfo "{_CERTIFICATES}";')
    return "\n".join(lines) + "\n"


def archive_lines(suite: str) -> list[str]:
    """sources.list for a suite of Debian's archive, from where this machine has its own."""
    if shutil.which("apt-get") is None:
        return []
    form = "$(ORIGIN) $(REPO_URI) $(RELEASE)"
    words = ["apt-get", "indextargets", "--format", form]
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    main, security = "", ""
    for line in sorted(set(listed.splitlines())):
        origin, _, rest = line.partition(" ")
        uri, _, release = rest.partition(" ")
        if origin == "Debian" and release.endswith("-security"):
            security = uri
        elif origin == "Debian":
            main = uri
    lines = [f"deb {main} {suite} main", f"deb {main} {suite}-updates main"] if main else []
    return lines + ([f"deb {security} {suite}-security main"] if main and security else [])


# ---- the root file system ----


def build_archive(suite: str, tar: Path) -> None:
    """Makes the file system as a tar file."""
    tar.parent.mkdir(parents=True, exist_ok=True)
    part = tar.with_suffix(".part")
    include = f"--include={','.join(PACKAGES)}"
    with tempfile.TemporaryDirectory() as scratch:
        if shutil.which("mmdebstrap"):
            settings = Path(scratch) / "apt.conf"
            settings.write_text(apt_settings().replace(_CERTIFICATES, str(certificates())))
            hooks = [
                f'--setup-hook=cp --parents {shlex.quote(str(path))} "$1"'
                for path in settings_files("/")
                if str(path).startswith("/etc/apt/")
            ]
            words = ["mmdebstrap", "--variant=minbase", "--format=tar", include, *hooks,
                     f"--aptopt={settings}", suite, str(part), *archive_lines(suite)]  # fmt: skip
            subprocess.run(words, check=True)
        elif shutil.which("debootstrap"):
            folder = Path(scratch) / "root"
            mirror = [line.split()[1] for line in archive_lines(suite)[:1]]
            words = ["debootstrap", "--variant=minbase", include, suite, str(folder), *mirror]
            subprocess.run(words, check=True)
            subprocess.run(["tar", "-cf", part, "-C", folder, "."], check=True)
        else:
            sys.exit("make fresh: expected mmdebstrap or debootstrap (apt-get install mmdebstrap)")
    part.rename(tar)


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


def take_settings(machine: Path, user: str) -> None:
    """Puts this machine's settings into another's files."""
    home = home_of(user)
    for source, target in settings_files(home).items():
        place = machine / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # it may be a link that leads out of the machine
        shutil.copyfile(source, place)
        place.chmod(0o644)
    # Every installed Debian has this file; a root file system made by a tool has none.
    (machine / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (machine / "etc/apt/apt.conf.d/99host").write_text(apt_settings())
    # A machine that is thrown away needs no package on its disk for good.
    (machine / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    if user != "root":
        subprocess.run(["chroot", machine, "useradd", "--create-home", user], check=True)
        subprocess.run(["chroot", machine, "chown", "-R", f"{user}:", home], check=True)


def furnish(machine: Path, cache: Path, user: str) -> None:
    """Mounts what a machine has (in this process's own namespace), and what was fetched before."""
    mount("-t", "proc", "proc", machine / "proc")
    mount("--rbind", "/sys", machine / "sys")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", machine / "dev")
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (machine / "dev" / name).touch()
        mount("--bind", f"/dev/{name}", machine / "dev" / name)
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1",
                         "stderr": "fd/2", "ptmx": "pts/ptmx"}.items():  # fmt: skip
        (machine / "dev" / name).symlink_to(target)
    for name in ("shm", "pts"):
        (machine / "dev" / name).mkdir()
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", machine / "dev/shm")
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts",
          machine / "dev/pts")  # fmt: skip
    for path in package_folders():
        place = machine / str(path).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        mount("--bind", "-o", "ro", path, place)
    # pip uses no cache that another user owns.
    identity = pwd_of(machine, user)
    for place, kept, owner in (
        (machine / "var/cache/apt/archives", cache / "deb", (0, 0)),
        (machine / "var/cache/pip", cache / f"pip-{user}", identity),
    ):
        kept.mkdir(parents=True, exist_ok=True)
        os.chown(kept, *owner)
        place.mkdir(parents=True, exist_ok=True)
        mount("--bind", kept, place)
    (machine / "var/cache/apt/archives/partial").mkdir(exist_ok=True)


def pwd_of(machine: Path, user: str) -> tuple[int, int]:
    """A user's and its group's number on a machine."""
    for line in (machine / "etc/passwd").read_text().splitlines():
        name, _, uid, gid, *_rest = line.split(":")
        if name == user:
            return int(uid), int(gid)
    raise StepError(f"the machine has no user {user}")


def home_of(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


# ---- inside: namespaces, and one command after the other ----


def raise_loopback() -> None:
    """Of this network namespace: its loopback, and one more address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(_OTHER_ADDRESS))
        fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s", b"lo:1", address))


class Machine:
    """One machine from inside its namespaces: runs commands on it."""

    def __init__(self, folder: Path, user: str, log: Path) -> None:
        self.folder = folder
        self.user = user
        self.clone = f"{home_of(user)}/lumen"
        self._log = log
        self._network = folder.parent / "network"
        self._network.touch()
        code = "import sys; sys.path.insert(0, sys.argv[1]); import fresh; fresh.raise_loopback()"
        subprocess.run(["unshare", f"--net={self._network}", sys.executable, "-c", code,
                        Path(__file__).parent], check=True)  # fmt: skip

    def words(self, command: str, user: str, online: bool) -> list[str]:
        """The command line on this side."""
        uid, gid = pwd_of(self.folder, user)
        way = [] if online else ["nsenter", f"--net={self._network}"]
        return [*way, "chroot", f"--userspec={uid}:{gid}", "--groups=", str(self.folder),
                "/bin/sh", "-c", command]  # fmt: skip

    def environment(self, user: str) -> dict[str, str]:
        return {
            **variables(),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": home_of(user),
            "LANG": "C.UTF-8",
            "PIP_CACHE_DIR": "/var/cache/pip",
        }

    def start(self, command: str, output: Path) -> subprocess.Popen[bytes]:
        """A command of the user in the clone, beside others, without the host's network."""
        with output.open("wb") as file:
            return subprocess.Popen(
                self.words(f"cd {self.clone} && exec {command}", self.user, online=False),
                env=self.environment(self.user),
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def run(
        self, command: str, user: str | None = None, online: bool = False, status: int = 0
    ) -> str:
        """A command to its end, in the clone where there is one.

        Returns:
            What it printed.

        Raises:
            StepError: it ended with another status.
        """
        user = user or self.user
        at = self.clone if (self.folder / self.clone.lstrip("/")).is_dir() else home_of(user)
        began = time.monotonic()
        with self._log.open("ab+") as log:
            log.write(f"\n==== {user}: {command}\n".encode())
            log.flush()
            from_here = log.tell()
            done = subprocess.run(
                self.words(f"cd {at} && {command}", user, online), env=self.environment(user),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
            log.seek(from_here)
            printed = log.read().decode("utf-8", "replace")
        say(f"  {time.monotonic() - began:7.1f} s  {user}: {command}")
        if done.returncode != status:
            end = "\n".join(printed.splitlines()[-60:])
            raise StepError(f"{command}: exit status {done.returncode}\n{end}")
        return printed


def wait_for(condition: Callable[[], object], what: str, seconds: float = READY_S) -> None:
    until_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until_s:
            raise StepError(f"expected within {seconds:g} s: {what}")
        time.sleep(0.02)


def ask(machine: Machine) -> None:
    """README's commands beside a server, and its pages."""
    said = machine.run(".venv/bin/lumen predict tests/data/digits/digit_7.png")
    if re.search(r"^ *7\b", said, re.MULTILINE) is None:
        raise StepError(f"expected a 7, found:\n{said}")
    machine.run(".venv/bin/lumen stats")
    machine.run(".venv/bin/lumen doctor")
    page = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)"
    for path in ("8000/v2/models/digits", "8000/", "8002/metrics", "8002/healthz"):
        machine.run(f"python3 -c {shlex.quote(page)} http://127.0.0.1:{path}")


def serve_and_ask(machine: Machine) -> None:
    """`make run`, then in another process what README shows, then Ctrl-C."""
    output = machine.folder.parent / "make-run"
    began = time.monotonic()
    server = machine.start("make run", output)

    def ready() -> bool:
        if server.poll() is not None:
            raise StepError(f"make run: exit status {server.returncode}\n{output.read_text()}")
        return "Try: " in output.read_text()

    wait_for(ready, "make run serves")
    say(f"  {time.monotonic() - began:7.1f} s  {machine.user}: make run, until it serves")
    try:
        ask(machine)
        os.killpg(server.pid, signal.SIGINT)
        code = server.wait(READY_S)
        # make itself ends by the signal, as it does in a terminal.
        if code not in (0, -signal.SIGINT) or "Traceback" in output.read_text():
            raise StepError(f"make run: exit status {code} after Ctrl-C")
        notes = re.findall(r"^  note +(.*)$", output.read_text(), re.MULTILINE)
        if any("epoll is used" not in note for note in notes):
            raise StepError("make run: expected no note on a fresh machine")
    except (StepError, subprocess.TimeoutExpired) as error:
        state = "runs" if server.poll() is None else f"ended with {server.returncode}"
        raise StepError(f"{error}\nmake run {state}, and said:\n{output.read_text()}") from None
    if left := [path.name for path in (machine.folder / "dev/shm").iterdir()]:
        raise StepError(f"make run left in /dev/shm: {left}")


def trial(machine: Machine, steps: Sequence[str]) -> None:
    """Follows README on one machine; raises where a step fails."""
    machine.run(f"git clone --quiet {_BUNDLE} {machine.clone}")
    if machine.user != "root":
        printed = machine.run("make run", status=2)
        found = _TYPE_AS_ROOT.search(printed)
        if found is None:
            raise StepError(f"expected the line that root has to type, found:\n{printed}")
        machine.run(found.group(1), user="root", online=True)
    if "run" in steps:
        machine.run("make build", online=True)
        serve_and_ask(machine)
    if "test" in steps:
        machine.run("make dev", online=True)
        skipped = _SKIPPED.findall(machine.run("make test"))
        say(f"  {len(skipped)} skipped")
        for each in sorted(skipped):
            say(f"    {each}")


def inside(settings: Mapping[str, object]) -> NoReturn:
    """Process 1 of a machine's namespace: takes in orphans until the trial's process has ended."""
    child = os.fork()
    if child:
        while True:
            ended, status = os.wait()
            if ended == child:
                os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    folder, user = Path(str(settings["folder"])), str(settings["user"])
    try:
        furnish(folder, Path(str(settings["cache"])), user)
        shared = settings["shared"]
        if shared:
            place = folder / home_of(user).lstrip("/") / "shared"
            place.mkdir()
            mount("--bind", "-o", "ro", str(shared), place)
        steps = settings["steps"]
        assert isinstance(steps, list)
        trial(Machine(folder, user, Path(str(settings["log"]))), steps)
    except StepError as error:
        say(f"fresh: as {user}: {error}")
        os._exit(1)
    os._exit(0)


# ---- outside ----


@contextmanager
def unpacked(tar: Path, keep: bool) -> Iterator[Path]:
    """A new machine's folder; removed at the end."""
    above = Path(tempfile.mkdtemp(prefix="lumen-fresh-", dir="/var/tmp"))
    above.chmod(0o755)
    try:
        folder = above / "root"
        folder.mkdir()
        subprocess.run(["tar", "-xpf", tar, "--numeric-owner", "-C", folder], check=True)
        yield folder
    finally:
        if keep:
            say(f"  kept: {above}")
        else:
            shutil.rmtree(above, ignore_errors=True)


def try_as(user: str, tar: Path, cache: Path, options: argparse.Namespace) -> bool:
    """One machine from its unpacking to its end; whether all went well."""
    say(f"as {user}:")
    began = time.monotonic()
    shared = ROOT.parent / "shared" if user == "root" else None
    log = cache / f"{options.suite}-{user}.log"
    log.write_bytes(b"")
    with unpacked(tar, options.keep) as folder:
        take_settings(folder, user)
        bundle = folder / _BUNDLE.lstrip("/")
        subprocess.run(["git", "-C", ROOT, "bundle", "create", "--quiet", bundle, "HEAD"],
                       check=True)  # fmt: skip
        settings = {
            "folder": str(folder), "user": user, "cache": str(cache), "log": str(log),
            "steps": options.steps.split(","),
            "shared": str(shared) if shared is not None and shared.is_dir() else "",
        }  # fmt: skip
        own = ["--mount", "--mount-proc", "--pid", "--fork", "--kill-child"]
        words = [sys.executable, __file__, "--inside", json.dumps(settings)]
        done = subprocess.run(["unshare", *own, *words], check=False)
    verdict = "passed" if done.returncode == 0 else "FAILED"
    say(f"as {user}: {verdict} in {time.monotonic() - began:.0f} s; all it printed: {log}")
    return done.returncode == 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    found.add_argument("--suite", default="bookworm", help="of Debian (%(default)s)")
    found.add_argument("--users", default=f"root,{USER}", help="(%(default)s)")
    found.add_argument("--steps", default="run,test", help="(%(default)s)")
    found.add_argument("--keep", action="store_true", help="leave the machines' folders")
    found.add_argument("--rebuild", action="store_true", help="make the root file system anew")
    found.add_argument("--inside", help=argparse.SUPPRESS)
    return found


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.inside:
        inside(json.loads(options.inside))
    if os.geteuid() != 0:
        sys.exit("make fresh: expected root (it makes a root file system and namespaces)")
    for program in ("unshare", "nsenter", "chroot", "tar", "git"):
        if shutil.which(program) is None:
            sys.exit(f"make fresh: {program} is not installed")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = base / "lumen" / "fresh"
    tar = cache / f"{options.suite}.tar"
    if options.rebuild or not tar.exists():
        build_archive(options.suite, tar)
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "log", "-1", "--format=%h %s"], check=True, capture_output=True,
                          text=True).stdout.strip()  # fmt: skip
    say(f"Debian {options.suite}, commit {head}")
    if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode:
        say("Changes that are not committed are not tried.")
    results = [try_as(user, tar, cache, options) for user in options.users.split(",")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
