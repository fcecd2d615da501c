"""Puts an OCI image together from the wheel, without Docker, and runs it once: `make image`.

Run on Debian 12 as root, by a person. mmdebstrap unpacks Python's packages and nothing else: no
shell, no package manager. pip adds the wheel and what it needs; umoci writes the layers. Then crun
runs the image as a cluster would: another user, no capability, a root that nobody can write,
deploy/seccomp-lumen.json. It must give a right digit and end in order.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))
import wheel as wheel_tool
import wheel_test

ROOT: Final = Path(__file__).resolve().parents[1]
PROFILE: Final = ROOT / "deploy" / "seccomp-lumen.json"
SUITE: Final = "bookworm"
PACKAGES: Final = "python3-minimal,libpython3-stdlib,libstdc++6"
PYTHON: Final = "3.11"
USER: Final = 10001
TOOLS: Final = ("mmdebstrap", "umoci", "crun", "unshare")
# Of what the packages bring, a server needs this: no shell, no package manager.
KEPT: Final = ("lib", "lib64", "usr/lib", "usr/bin/python3*")
# ONNX Runtime's C library is used; its Python module is as large again.
NOT_SERVED: Final = (
    "onnxruntime/capi/onnxruntime_pybind11_state*",
    "onnxruntime/transformers",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/datasets",
    "onnx/backend",
    "numpy/**/tests",
)
STARTER: Final = """#!/usr/bin/python3
import sys
from lumen_uring.cli import main
sys.exit(main())
"""
ENTRY: Final = ("lumen",)
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin",
    "XDG_CACHE_HOME": "/var/cache",
    "LUMEN_SERVER__HOST": "0.0.0.0",
    "LUMEN_SERVER__METRICS_HOST": "0.0.0.0",
}


def run(*command: str | Path, **more: Any) -> None:
    """Runs a command, which must succeed."""
    subprocess.run([str(word) for word in command], check=True, **more)


def make_base(root: Path) -> None:
    """Unpacks Debian's Python.

    Args:
        root: a folder to make.
    """
    whole = root.with_name("whole")
    extract = ["--quiet", "--mode=root", "--variant=extract", f"--include={PACKAGES}"]
    run("mmdebstrap", *extract, SUITE, whole)
    for pattern in KEPT:
        for path in whole.glob(pattern):
            target = root / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    for name in ("dev", "proc", "sys", "tmp", "run", "etc/lumen", "var/cache/lumen"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    os.chown(root / "var" / "cache" / "lumen", USER, USER)
    (root / "etc" / "passwd").write_text(f"lumen:x:{USER}:{USER}:Lumen:/:/nonexistent\n")
    (root / "etc" / "group").write_text(f"lumen:x:{USER}:\n")
    licences = root / "usr" / "share" / "licences"
    licences.mkdir(parents=True)
    for text in (whole / "usr" / "share" / "doc").glob("*/copyright"):
        if text.is_file():
            shutil.copy(text, licences / f"{text.parent.name}.txt")
    shutil.rmtree(whole)


def add_lumen(root: Path, wheel: Path) -> None:
    """Installs the wheel where Debian's Python looks for what is not Debian's.

    Args:
        root: make_base's.
        wheel: the file.
    """
    packages = root / "usr" / "local" / "lib" / f"python{PYTHON}" / "dist-packages"
    platforms = [f"manylinux_2_{minor}_{platform.machine()}" for minor in range(28, 11, -1)]
    platforms.append(f"manylinux2014_{platform.machine()}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-cache-dir"]
    pip += ["--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp"]
    pip += [f"--python-version={PYTHON}", *(f"--platform={name}" for name in platforms)]
    run(*pip, "--target", packages, wheel)
    remove(packages, (*NOT_SERVED, "bin"))
    starter = root / "usr" / "local" / "bin" / "lumen"
    starter.parent.mkdir(parents=True, exist_ok=True)
    starter.write_text(STARTER)
    starter.chmod(0o755)
    # Nobody can write bytecode later, and its validity must not hang on times.
    compiler = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    inside = f"/{packages.relative_to(root)}"
    run("chroot", root, "/usr/bin/python3", *compiler, f"/usr/lib/python{PYTHON}", inside)


def remove(folder: Path, patterns: tuple[str, ...]) -> None:
    """Deletes what matches, as far as it is there."""
    for pattern in patterns:
        for path in sorted(folder.glob(pattern), reverse=True):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def write_image(root: Path, layout: Path, version: str) -> None:
    """Writes an OCI layout with one layer.

    Args:
        root: all that is in the image.
        layout: the folder to make.
        version: the image's tag.
    """
    shutil.rmtree(layout, ignore_errors=True)
    image = f"{layout}:{version}"
    seconds = wheel_tool.commit_time()
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    for path in [root, *root.rglob("*")]:
        os.utime(path, (seconds, seconds), follow_symlinks=False)
    run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", image)
    history = [f"--history.created={created}", "--history.created_by=tools/image.py"]
    run("umoci", "insert", *history, "--image", image, root, "/")
    config = [f"--config.user={USER}:{USER}", "--config.stopsignal=SIGTERM"]
    config += [f"--config.entrypoint={word}" for word in ENTRY]
    config += [f"--config.env={name}={value}" for name, value in ENVIRONMENT.items()]
    config += ["--config.exposedports=8000/tcp", "--config.exposedports=8002/tcp"]
    config += ["--config.label=org.opencontainers.image.title=Lumen"]
    config += [f"--config.label=org.opencontainers.image.version={version}"]
    config += ["--config.label=org.opencontainers.image.licenses=MIT"]
    run("umoci", "config", *config, f"--created={created}", "--no-history", "--image", image)
    run("umoci", "gc", "--layout", layout)


def bundle_settings(config: dict[str, Any], port: int) -> None:
    """Turns umoci's runtime settings into a cluster's: no rights, nothing to write, our profile.

    Args:
        config: config.json, changed in place.
        port: of the server.
    """
    config["process"]["terminal"] = False
    config["process"]["noNewPrivileges"] = True
    config["process"]["capabilities"] = {}
    config["process"]["env"] += [f"LUMEN_SERVER__PORT={port}", "LUMEN_SERVER__METRICS_PORT=0"]
    config["root"]["readonly"] = True
    config["linux"]["seccomp"] = json.loads(PROFILE.read_text())
    config["linux"].pop("resources", None)
    # The host's network, so that this program can ask.
    spaces = config["linux"]["namespaces"]
    config["linux"]["namespaces"] = [space for space in spaces if space["type"] != "network"]
    config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
    cache = ["nosuid", "nodev", f"uid={USER}", f"gid={USER}", "mode=700"]
    config["mounts"].append(
        {"destination": "/var/cache/lumen", "type": "tmpfs", "source": "tmpfs", "options": cache}
    )


def try_image(layout: Path, version: str, folder: Path) -> None:
    """Runs the image, asks for a digit, and ends it.

    Args:
        layout: write_image's.
        version: the image's tag.
        folder: an empty one.

    Raises:
        SystemExit: it does not serve, answers wrongly, or does not end in order.
    """
    bundle, name = folder / "bundle", f"lumen-{os.getpid()}"
    run("umoci", "unpack", "--image", f"{layout}:{version}", bundle)
    settings = bundle / "config.json"
    config = json.loads(settings.read_text())
    port = 18000 + os.getpid() % 2000
    bundle_settings(config, port)
    settings.write_text(json.dumps(config))
    # A cgroup tree of version 2 for crun alone, whatever the system has.
    crun = ["unshare", "--mount", "sh", "-c"]
    crun.append('umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"')
    crun += ["sh", "crun", "--cgroup-manager=disabled"]
    began = time.monotonic()
    server = subprocess.Popen(
        [*crun, "run", "--bundle", str(bundle), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    banner: list[str] = []
    for line in server.stdout:
        banner.append(line)
        if line.startswith("  ready"):
            break
    else:
        raise SystemExit(f"the image does not serve:\n{''.join(banner)}")
    ready = time.monotonic() - began
    try:
        digit = wheel_test.ask(port, wheel_test.digit_request())
        health = ["lumen", "health", "--ready"]  # the port is in the container's environment
        healthy = subprocess.run([*crun, "exec", name, *health], check=False).returncode
        state = subprocess.run(["crun", "state", name], capture_output=True, check=True).stdout
        user = Path(f"/proc/{json.loads(state)['pid']}").stat().st_uid
    finally:
        subprocess.run(["crun", "kill", name, "SIGTERM"], check=False)
    rest, _ = server.communicate(timeout=60)
    backend = next(line.split()[1].rstrip(",") for line in banner if line.startswith("  I/O"))
    print(
        f"run by crun as user {user}, root read-only, no capability, {PROFILE.name}: {backend}, "
        f"serves after {ready:.2f} s, digit {digit}, health {healthy}, exit status "
        f"{server.returncode} after SIGTERM"
    )
    found = (digit, healthy, server.returncode, user)
    if found != (wheel_test.DIGIT, 0, 0, USER) or "Draining" not in rest:
        raise SystemExit(f"expected digit {wheel_test.DIGIT}, health 0, status 0; it said:\n{rest}")


def main() -> int:
    """Runs as a command: the wheel is the argument.

    Returns:
        The exit status.
    """
    wheel, version = Path(sys.argv[1]).resolve(), wheel_tool.version()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid():
        sentence = f"make image needs root and {', '.join(TOOLS)}; not here: "
        raise SystemExit(sentence + (", ".join(missing) or "root") + ".")
    layout = ROOT / "dist" / f"lumen-{version}-oci"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary, "root")
        make_base(root)
        add_lumen(root, wheel)
        write_image(root, layout, version)
        unpacked = wheel_test.megabytes(root)
        try_image(layout, version, Path(temporary))
    archive = layout.with_name(f"{layout.name}.tar")
    run("tar", "--sort=name", "-C", layout, "-cf", archive, ".")
    print(
        f"{archive}: {archive.stat().st_size / 1e6:.1f} MB compressed, {unpacked:.0f} MB unpacked"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
