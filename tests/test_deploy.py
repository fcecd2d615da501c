"""deploy/: every form of running Lumen as a service agrees with the server and with the others.

Kubernetes' objects are held against the fields that are known here, since a cluster ignores a
misspelt one. The profiles are run: a server under them serves as without them.
"""

from __future__ import annotations

import ctypes
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import image
import needs
import pytest
import wheel as wheel_tool
import wheel_test
import yaml

from lumen_uring import cli
from lumen_uring.config import load
from lumen_uring.metrics import load as load_metrics
from lumen_uring.ring.report import Load
from lumen_uring.settings.schema import Config

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"

UNIT = DEPLOY / "lumen.service"
PROFILE = DEPLOY / "seccomp-lumen.json"
EXPOSURE_MAX = 1.5

# --- Kubernetes: field -> type or fields; [x] a list of x; {"*": x} any names.
TEXT, NUMBER, FLAG = str, int, bool
EITHER = (str, int)
LABELS = {"*": TEXT}
META = {"name": TEXT, "labels": LABELS, "annotations": LABELS}
SELECTOR = {"matchLabels": LABELS}
PROBE = {
    "httpGet": {"path": TEXT, "port": EITHER},
    "periodSeconds": NUMBER,
    "timeoutSeconds": NUMBER,
    "failureThreshold": NUMBER,
}
SECCOMP = {"type": TEXT, "localhostProfile": TEXT}
USER = {"runAsNonRoot": FLAG, "runAsUser": NUMBER, "seccompProfile": SECCOMP}
CONTAINER = {
    "name": TEXT,
    "image": TEXT,
    "args": [TEXT],
    "env": [{"name": TEXT, "value": TEXT}],
    "ports": [{"name": TEXT, "containerPort": NUMBER, "protocol": TEXT}],
    "resources": {
        "requests": {"cpu": TEXT, "memory": TEXT},
        "limits": {"cpu": TEXT, "memory": TEXT},
    },
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "securityContext": {
        **USER,
        "allowPrivilegeEscalation": FLAG,
        "readOnlyRootFilesystem": FLAG,
        "capabilities": {"drop": [TEXT]},
    },
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "readOnly": FLAG}],
}
VOLUMES = [{"name": TEXT, "configMap": {"name": TEXT}, "emptyDir": {}}]
POD = {
    "automountServiceAccountToken": FLAG,
    "enableServiceLinks": FLAG,
    "terminationGracePeriodSeconds": NUMBER,
    "securityContext": {**USER, "runAsGroup": NUMBER, "fsGroup": NUMBER},
    "containers": [CONTAINER],
    "volumes": VOLUMES,
}
ROLLING = {"type": TEXT, "rollingUpdate": {"maxUnavailable": EITHER, "maxSurge": EITHER}}
KINDS: dict[tuple[str, str], dict[str, Any]] = {
    ("v1", "ConfigMap"): {"data": {"*": TEXT}},
    ("apps/v1", "Deployment"): {
        "spec": {
            "replicas": NUMBER,
            "selector": SELECTOR,
            "strategy": ROLLING,
            "template": {"metadata": META, "spec": POD},
        }
    },
    ("v1", "Service"): {
        "spec": {
            "selector": LABELS,
            "ports": [{"name": TEXT, "port": NUMBER, "targetPort": EITHER}],
        }
    },
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"minAvailable": EITHER, "selector": SELECTOR}},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "spec": {
            "scaleTargetRef": {"apiVersion": TEXT, "kind": TEXT, "name": TEXT},
            "minReplicas": NUMBER,
            "maxReplicas": NUMBER,
            "metrics": [
                {
                    "type": TEXT,
                    "pods": {
                        "metric": {"name": TEXT},
                        "target": {"type": TEXT, "averageValue": TEXT},
                    },
                }
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": NUMBER}},
        }
    },
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "spec": {
            "scaleTargetRef": {"name": TEXT},
            "minReplicaCount": NUMBER,
            "maxReplicaCount": NUMBER,
            "cooldownPeriod": NUMBER,
            "triggers": [
                {
                    "type": TEXT,
                    "metadata": {"serverAddress": TEXT, "query": TEXT, "threshold": TEXT},
                }
            ],
        }
    },
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): {
        "spec": {
            "annotations": LABELS,
            "supportedModelFormats": [
                {"name": TEXT, "version": TEXT, "autoSelect": FLAG, "priority": NUMBER}
            ],
            "protocolVersions": [TEXT],
            "containers": [CONTAINER],
            "volumes": VOLUMES,
        }
    },
}


def check(found: object, shape: Any, path: str) -> None:
    """Fails at the first field that is unknown or of another type."""
    if isinstance(shape, dict):
        assert isinstance(found, dict), path
        for name, value in found.items():
            assert name in shape or "*" in shape, f"{path}.{name} is no field"
            check(value, shape.get(name, shape.get("*")), f"{path}.{name}")
    elif isinstance(shape, list):
        assert isinstance(found, list), path
        for index, value in enumerate(found):
            check(value, shape[0], f"{path}[{index}]")
    else:
        assert isinstance(found, shape), path
        assert not (isinstance(found, bool) and shape is not FLAG), path


def objects() -> dict[str, Any]:
    """Every object of deploy/kubernetes, by its kind."""
    found = {}
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            found[document["kind"]] = document
    return found


@pytest.fixture
def deployment() -> Any:
    return objects()["Deployment"]


@pytest.fixture
def pod(deployment: Any) -> Any:
    return deployment["spec"]["template"]["spec"]


@pytest.fixture
def runtime() -> Any:
    return objects()["ClusterServingRuntime"]["spec"]


def cluster_settings(folder: Path) -> Config:
    """The configuration that the Deployment's server reads."""
    path = folder / "config.yaml"
    path.write_text(objects()["ConfigMap"]["data"]["config.yaml"])
    return load(path)


def serve_settings(argv: list[str], environment: dict[str, str]) -> Config:
    """The settings that `lumen ARGV` arrives at; a wrong option or setting fails."""
    parser = cli.make_parser()
    arguments = parser.parse_args(["serve", *argv] if argv[:1] != ["serve"] else argv)
    return load(arguments.config, arguments.overrides, arguments.models, environment)


def test_kubernetes_objects_have_fields_that_exist() -> None:
    found = objects()
    assert len(found) == len(KINDS)
    for document in found.values():
        shape = KINDS[document["apiVersion"], document["kind"]]
        head = {"apiVersion": TEXT, "kind": TEXT, "metadata": META}
        check(document, {**head, **shape}, document["kind"])


def test_a_misspelt_field_is_found() -> None:
    for wrong in (
        {"imagee": "x"},
        {"readinessProbe": {"httpGet": {"prot": 1}}},
        {"args": ["a", 1]},
    ):
        with pytest.raises(AssertionError):
            check(wrong, CONTAINER, "")


def test_the_pods_are_those_the_others_mean(deployment: Any, pod: Any) -> None:
    found = objects()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    budget = found["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["minAvailable"] < deployment["spec"]["replicas"]
    names = {port["name"] for port in pod["containers"][0]["ports"]}
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= names
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == set(volumes)
    assert volumes["config"]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]


def test_who_scales_looks_at_a_metric_that_there_is(deployment: Any) -> None:
    found = objects()
    hpa, keda = (found[kind]["spec"] for kind in ("HorizontalPodAutoscaler", "ScaledObject"))
    name = deployment["metadata"]["name"]
    assert hpa["scaleTargetRef"]["name"] == keda["scaleTargetRef"]["name"] == name
    assert hpa["scaleTargetRef"]["kind"] == deployment["kind"]
    assert hpa["minReplicas"] == keda["minReplicaCount"] == deployment["spec"]["replicas"]
    (metric,) = hpa["metrics"]
    (trigger,) = keda["triggers"]
    shown = {family.name for family in load_metrics.collect(Load)}
    assert metric["pods"]["metric"]["name"] in shown
    assert set(re.findall(r"\blumen_\w+", trigger["metadata"]["query"])) <= shown
    assert metric["pods"]["target"]["averageValue"] == "700m"
    assert float(trigger["metadata"]["threshold"]) == 0.7


def test_the_cluster_waits_for_the_drain(pod: Any, tmp_path: Path) -> None:
    settings = cluster_settings(tmp_path)
    assert settings.server.unready_seconds > pod["containers"][0]["readinessProbe"]["periodSeconds"]
    needed_s = settings.server.unready_seconds + settings.server.drain_seconds
    assert needed_s < pod["terminationGracePeriodSeconds"]


def test_the_pod_is_served_on_its_ports(
    deployment: Any, pod: Any, runtime: Any, tmp_path: Path
) -> None:
    settings, container = cluster_settings(tmp_path), pod["containers"][0]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"] == ["--config", f"{mounted['config']}/config.yaml"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.server.host == "0.0.0.0"
    assert settings.server.hosts == ("*",)
    assert settings.server.port == ports["http"]
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["metrics"])
    cpus = container["resources"]["limits"]["cpu"]
    assert settings.engine.thread_count == int(cpus)

    kserve = runtime["containers"][0]
    arguments = [word.replace("{{.Name}}", "mine") for word in kserve["args"]]
    environment = {entry["name"]: entry["value"] for entry in kserve["env"]}
    served = serve_settings(arguments, {**image.ENVIRONMENT, **environment})
    assert (served.models[0].name, served.models[0].path) == ("mine", "/mnt/models")
    assert (served.server.host, served.server.hosts) == ("0.0.0.0", ("*",))
    assert served.server.port == kserve["ports"][0]["containerPort"]
    for one in (container, kserve):
        for probe in ("readinessProbe", "livenessProbe"):
            asked = one[probe]["httpGet"]
            assert asked["path"] == f"/v2/health/{'live' if probe[0] == 'l' else 'ready'}"
            assert asked["port"] in ("http", one["ports"][0]["containerPort"])


def test_nobody_is_root_and_nothing_is_written(pod: Any, runtime: Any) -> None:
    for common, container in (
        (pod["securityContext"], pod["containers"][0]),
        ({}, runtime["containers"][0]),
    ):
        rights = {**common, **container["securityContext"]}
        assert rights["runAsNonRoot"]
        assert rights["runAsUser"] == image.USER
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["seccompProfile"] == {"type": "Localhost", "localhostProfile": PROFILE.name}
        assert container["image"] == f"lumen:{wheel_tool.version()}"
        # The kubelet's static CPU manager gives whole cores where both are equal integers.
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["resources"]["limits"]["cpu"].isdecimal()
        cache = f"{image.ENVIRONMENT['XDG_CACHE_HOME']}/lumen"
        assert cache in [mount["mountPath"] for mount in container["volumeMounts"]]


def dockerfile() -> list[list[tuple[str, str]]]:
    """Instruction and text, by stage."""
    text = re.sub(r"\\\n", "", (DEPLOY / "Dockerfile").read_text())
    stages: list[list[tuple[str, str]]] = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            verb, _, rest = line.partition(" ")
            if verb == "FROM":
                stages.append([])
            stages[-1].append((verb, rest.strip()))
    return stages


def test_the_dockerfile_makes_what_make_image_makes() -> None:
    _, final = dockerfile()
    said = dict(final)
    assert set(said) == {
        *("FROM", "LABEL", "COPY", "ENV", "USER", "EXPOSE"),
        *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"),
    }
    assert said["USER"] == f"{image.USER}:{image.USER}"
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(said["ENTRYPOINT"]) == list(image.ENTRY)
    assert said["EXPOSE"] == "8000 8002"
    environment = dict(word.split("=", 1) for word in shlex.split(said["ENV"]))
    assert environment.pop("PATH").startswith("/opt/lumen/bin:")
    assert environment == {name: text for name, text in image.ENVIRONMENT.items() if name != "PATH"}
    assert serve_settings([], environment).server.host == "0.0.0.0"
    health = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    assert health[0] == "lumen"
    cli.make_parser().parse_args(health[1:])


def test_the_dockerfile_gets_the_wheel_and_nothing_else() -> None:
    build, final = dockerfile()
    sources = [text.split()[0] for verb, text in build if verb == "COPY"]
    name = f"lumen_uring-{wheel_tool.version()}-py3-none-manylinux_2_28_x86_64.whl"
    assert len(sources) == 1
    assert fnmatch.fnmatch(f"dist/{name}", sources[0])
    said = next(text for verb, text in build if verb == "RUN")
    installed = re.search(r"/wheels/(\S+\.whl)", said.replace('"$(uname -m)"', "x86_64"))
    assert installed is not None
    pattern = installed[1]
    assert fnmatch.fnmatch(name, pattern)
    assert not fnmatch.fnmatch(name.replace("x86_64", "aarch64"), pattern)
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert lines == ["*", "!dist/*.whl"]
    assert all(text.startswith("--from=build ") for verb, text in final if verb == "COPY")


def unit() -> dict[str, list[str]]:
    """The unit's settings; each may be given several times."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_fits_the_server() -> None:
    said = unit()
    assert said["Type"] == ["notify"]
    program, *arguments = shlex.split(said["ExecStart"][0])
    assert program == "/opt/lumen/bin/lumen"
    cli.make_parser().parse_args(arguments)
    assert said["ExecReload"] == ['/bin/sh -c "kill -HUP ${MAINPID}"']
    default = load()
    ends_s = default.server.unready_seconds + default.server.drain_seconds
    assert float(said["TimeoutStopSec"][0]) > ends_s
    assert said["Environment"] == ["XDG_CACHE_HOME=%C"]
    assert said["CacheDirectory"] == said["RuntimeDirectory"] == ["lumen"]
    filtered = " ".join(said["SystemCallFilter"]).split()
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= set(filtered)


@pytest.fixture
def systemd_analyze() -> str:
    return shutil.which("systemd-analyze") or needs.absent("systemd_analyze")


def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path, systemd_analyze: str) -> None:
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/lumen/bin/lumen", sys.executable))
    verified = subprocess.run(
        [systemd_analyze, "verify", "--man=no", str(here)], capture_output=True, text=True
    )
    # It looks at the system's own units, too, and tells what is wrong there.
    said = [line for line in verified.stderr.splitlines() if UNIT.name in line]
    assert said == []
    secure = [systemd_analyze, "security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:.0f}"]
    judged = subprocess.run([*secure, str(here)], capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout[-200:]


def filter_of_the_unit(systemd_analyze: str) -> dict[str, Any]:
    """SystemCallFilter as a profile of the form that container runtimes read."""

    def names(word: str) -> set[str]:
        if not word.startswith("@"):
            return {word}
        listed = subprocess.run(
            [systemd_analyze, "syscall-filter", word], capture_output=True, text=True, check=True
        ).stdout
        words = [line.strip() for line in listed.splitlines()[1:]]
        return set().union(*(names(one) for one in words if one and not one.startswith("#")))

    allowed: set[str] = set()
    for line in unit()["SystemCallFilter"]:
        found = set().union(*(names(word) for word in line.removeprefix("~").split()))
        allowed = allowed - found if line.startswith("~") else allowed | found
    # systemd allows these whatever the filter says.
    allowed |= names("@default")
    rules = [{"names": sorted(allowed), "action": "SCMP_ACT_ALLOW"}]
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "syscalls": rules}


@pytest.mark.parametrize("which", ["container", "systemd"])
@pytest.mark.usefixtures("c_library")
def test_a_server_under_the_profile_serves_as_without(
    tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        needs.absent("libseccomp")
    profile = PROFILE
    if which == "systemd":
        profile = tmp_path / "profile.json"
        analyze = request.getfixturevalue("systemd_analyze")
        profile.write_text(json.dumps(filter_of_the_unit(analyze)))
    plain = [sys.executable, "-m", "lumen_uring"]
    under = [sys.executable, str(ROOT / "tests" / "with_profile.py"), str(profile), *plain]
    assert serve_once(under, tmp_path) == serve_once(plain, tmp_path)


def serve_once(command: list[str], folder: Path) -> str:
    """Serves, answers, ends; returns how it did I/O.

    The number of its threads is given: `auto` follows measured Run times, which differ from one
    start to the next.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    settings = ["--port", "0", "--set", "server.metrics_port=0", "--set", "server.io_threads=1"]
    with subprocess.Popen(
        [*command, *settings], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        banner = ""
        for line in server.stdout:
            banner += line
            if line.startswith("  ready"):
                break
        port = re.search(r"serves on \S+:(\d+)", banner)
        assert port is not None, banner
        digit = wheel_test.ask(int(port[1]), wheel_test.digit_request())
        server.terminate()
        server.communicate(timeout=120)
    assert (digit, server.returncode) == (wheel_test.DIGIT, 0)
    found = re.search(r"^  I/O +(.*)$", banner, re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_profile_allows_io_uring_and_no_way_out() -> None:
    profile = json.loads(PROFILE.read_text())
    named = [name for rule in profile["syscalls"] for name in rule["names"]]
    assert len(named) == len(set(named))
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= set(named)
    never = (
        "mount umount2 pivot_root chroot setns unshare clone3 ptrace bpf keyctl add_key kexec_load "
    )
    never += "init_module finit_module perf_event_open process_vm_writev userfaultfd reboot swapon "
    never += "open_by_handle_at settimeofday clock_settime mknod mknodat personality acct quotactl"
    assert not set(named) & set(never.split())
    # clone without any CLONE_NEW*: threads and children, no namespaces.
    clone = next(rule for rule in profile["syscalls"] if rule["names"] == ["clone"])
    spaces = 0x7C020000 | 0x02000000  # NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWCGROUP
    assert clone["args"][0]["value"] == spaces
    assert clone["args"][0]["valueTwo"] == 0


def test_the_bundle_is_what_a_cluster_would_run() -> None:
    config: dict[str, Any] = {
        "process": {"args": ["lumen"], "env": [], "terminal": True},
        "root": {"path": "rootfs"},
        "linux": {"resources": {}, "namespaces": [{"type": "network"}, {"type": "mount"}]},
        "mounts": [{"type": "cgroup"}, {"type": "proc"}],
    }
    image.bundle_settings(config, 1234)
    assert config["process"]["capabilities"] == {}
    assert config["process"]["noNewPrivileges"]
    assert config["root"]["readonly"]
    assert config["linux"]["seccomp"] == json.loads(PROFILE.read_text())
    assert "LUMEN_SERVER__PORT=1234" in config["process"]["env"]


def test_the_guide_names_what_there_is() -> None:
    text = (ROOT / "docs" / "DEPLOY.md").read_text()
    paths = set(re.findall(r"deploy/[\w./-]+\w", text))
    assert {"deploy/lumen.service", "deploy/seccomp-lumen.json"} <= paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"^([\w-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([\w-]+)", text)) <= targets
    assert set(re.findall(r"lumen[_a-z]*[-:](\d+\.\d+\.\d+)", text)) == {wheel_tool.version()}
    allowed = sum(len(rule["names"]) for rule in json.loads(PROFILE.read_text())["syscalls"])
    assert f"{allowed} system calls" in text
    commands = re.findall(r"^/opt/lumen/bin/lumen (.+)$", text, re.MULTILINE)
    commands += re.findall(r"^ .*lumen:\d\S+ (--.+)$", text, re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        assert serve_settings(shlex.split(command), {}).models[0].name == "mine"
