"""deploy/helm: the chart gives the objects of deploy/kubernetes, and what its values ask for.

What can be read off the files is tested everywhere. The templates are rendered by helm itself,
where a machine has it.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import needs
import pytest
import wheel as wheel_tool
import yaml
from test_deploy import (
    DEPLOY,
    FLAG,
    KINDS,
    LABELS,
    META,
    NUMBER,
    TEXT,
    check,
    objects,
)

from lumen_uring.config import load

CHART = DEPLOY / "helm" / "lumen"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
LOCAL = {"type": "Localhost"}  # of the plain objects
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# Labels of Helm, of which the plain objects have the first alone.
HELMS = {"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}


def shapes() -> dict[tuple[str, str], dict[str, Any]]:
    """The fields of test_deploy.py, and those that only the chart uses."""
    found = copy.deepcopy(KINDS)
    deployment = found["apps/v1", "Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    container = pod["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        container[probe]["httpGet"]["scheme"] = TEXT
    container |= {"imagePullPolicy": TEXT, "command": [TEXT], "envFrom": [{"*": {"*": TEXT}}]}
    container["env"][0]["valueFrom"] = {"secretKeyRef": {"name": TEXT, "key": TEXT}}
    container["volumeMounts"][0]["subPath"] = TEXT
    pod["volumes"][0] |= {
        "emptyDir": {"sizeLimit": TEXT},
        "secret": {"secretName": TEXT, "defaultMode": NUMBER},
        "persistentVolumeClaim": {"claimName": TEXT, "readOnly": FLAG},
        "hostPath": {"path": TEXT},
    }
    names = ("name", "image", "command", "args", "env", "securityContext", "volumeMounts")
    pod |= {
        "initContainers": [{name: container[name] for name in names}],
        "imagePullSecrets": [{"name": TEXT}],
        "serviceAccountName": TEXT,
        "priorityClassName": TEXT,
        "restartPolicy": TEXT,
        "nodeSelector": LABELS,
        "tolerations": [LABELS],
        "affinity": {"*": {"*": [{"*": TEXT}]}},
        "topologySpreadConstraints": [
            {
                "maxSkew": NUMBER,
                "topologyKey": TEXT,
                "whenUnsatisfiable": TEXT,
                "labelSelector": {"matchLabels": LABELS},
            }
        ],
    }
    found["v1", "Service"]["spec"]["type"] = TEXT
    found["v1", "Pod"] = {"spec": pod}
    found["monitoring.coreos.com/v1", "ServiceMonitor"] = {
        "spec": {
            "selector": {"matchLabels": LABELS},
            "endpoints": [{"port": TEXT, "path": TEXT, "interval": TEXT}],
        }
    }
    backend = {"service": {"name": TEXT, "port": {"name": TEXT}}}
    found["networking.k8s.io/v1", "Ingress"] = {
        "spec": {
            "ingressClassName": TEXT,
            "tls": [{"hosts": [TEXT], "secretName": TEXT}],
            "rules": [
                {
                    "host": TEXT,
                    "http": {"paths": [{"path": TEXT, "pathType": TEXT, "backend": backend}]},
                }
            ],
        }
    }
    return found


SHAPES = shapes()


def template(
    tmp_path: Path, values: dict[str, Any], release: str = "lumen"
) -> subprocess.CompletedProcess[str]:
    """helm template, with these values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [needs.helm(), "template", release, str(CHART), "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def render(tmp_path: Path, values: dict[str, Any], release: str = "lumen") -> dict[str, Any]:
    """Every object by its kind; each has fields that exist."""
    done = template(tmp_path, values, release)
    assert done.returncode == 0, done.stderr
    found = {}
    for document in yaml.safe_load_all(done.stdout):
        if document is None:
            continue
        shape = SHAPES[document["apiVersion"], document["kind"]]
        head = {"apiVersion": TEXT, "kind": TEXT, "metadata": {**META, "namespace": TEXT}}
        check(document, {**head, **shape}, document["kind"])
        found[document["kind"]] = document
    return found


def pod_of(found: dict[str, Any]) -> Any:
    return found["Deployment"]["spec"]["template"]["spec"]


def settings_of(found: dict[str, Any], tmp_path: Path) -> Any:
    """What the pods' Lumen makes of its settings file."""
    path = tmp_path / "config.yaml"
    path.write_text(found["ConfigMap"]["data"]["config.yaml"])
    return load(path)


def plain(value: Any) -> Any:
    """An object without what Helm adds: labels, the namespace, the checksum; settings are read."""
    if isinstance(value, dict):
        left = {
            key: plain(inner)
            for key, inner in value.items()
            if key not in HELMS and not key.startswith(("helm.sh/", "checksum/", "namespace"))
        }
        if left.get("kind") == "ConfigMap":
            left["data"] = {name: yaml.safe_load(text) for name, text in left["data"].items()}
        if left.get("labels") == {"app.kubernetes.io/name": "lumen"}:
            del left["labels"]
        if left.get("type") == "ClusterIP":  # what a Service is without a type
            del left["type"]
        return left
    return [plain(inner) for inner in value] if isinstance(value, list) else value


# ---- without helm ----


def test_the_chart_has_the_version_of_the_wheel() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == wheel_tool.version()


def test_the_schema_knows_each_value() -> None:
    def compare(value: Any, schema: Any, path: str) -> None:
        if not isinstance(value, dict) or "properties" not in schema:
            return
        unknown = value.keys() - schema["properties"].keys()
        assert not unknown or schema.get("additionalProperties") is not False, f"{path}: {unknown}"
        for name, inner in value.items():
            compare(inner, schema["properties"].get(name, {}), f"{path}.{name}")

    compare(VALUES, SCHEMA, "")
    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()


def test_templates_use_values_that_there_are() -> None:
    text = "".join(path.read_text() for path in sorted((CHART / "templates").rglob("*.*")))
    used = set(re.findall(r"\.Values\.([\w.]+)", text))
    for path in used:
        value: Any = VALUES
        for step in path.split("."):
            assert isinstance(value, dict), path
            if value == {} or path.startswith("config."):
                break  # what it holds is the user's
            assert step in value, path
            value = value[step]
    tops = {path.split(".")[0] for path in used}
    assert tops == VALUES.keys()
    assert text.count("{{") == text.count("}}")


def test_the_values_are_those_of_the_plain_objects() -> None:
    found = objects()
    pod = found["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert VALUES["config"] == yaml.safe_load(found["ConfigMap"]["data"]["config.yaml"])
    assert VALUES["resources"] == container["resources"]
    assert {**VALUES["seccompProfile"], **LOCAL} == pod["securityContext"]["seccompProfile"]
    assert VALUES["replicas"] == found["Deployment"]["spec"]["replicas"]
    assert VALUES["startupSeconds"] == container["startupProbe"]["failureThreshold"]
    budget = VALUES["podDisruptionBudget"]["minAvailable"]
    assert budget == found["PodDisruptionBudget"]["spec"]["minAvailable"]
    scaled, keda = VALUES["autoscaling"], found["ScaledObject"]["spec"]
    assert scaled["maxReplicas"] == keda["maxReplicaCount"]
    assert scaled["utilization"] == keda["triggers"][0]["metadata"]["threshold"]


# ---- with helm ----


def test_helm_has_nothing_to_complain_about() -> None:
    command = [needs.helm(), "lint", "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


def test_the_defaults_give_the_plain_objects(tmp_path: Path) -> None:
    """But for the seccomp profile: a node that lacks ours would start no pod."""
    found, wanted = render(tmp_path, {"seccompProfile": LOCAL}), objects()
    tried = found.pop("Pod")  # of `helm test`
    assert tried["metadata"]["annotations"]["helm.sh/hook"] == "test"
    names = {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}
    assert found.keys() == names
    for kind in names:
        assert plain(found[kind]) == plain(wanted[kind])


@pytest.mark.parametrize(
    ("kind", "name"), [("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")]
)
def test_what_scales_is_that_of_the_plain_objects(tmp_path: Path, kind: str, name: str) -> None:
    found, wanted = render(tmp_path, {"autoscaling": {"kind": kind}}), plain(objects()[name])
    assert "replicas" not in found["Deployment"]["spec"]  # who scales sets them
    given = plain(found[name])
    if kind == "keda":
        query = given["spec"]["triggers"][0]["metadata"].pop("query")
        assert query == 'sum(lumen_utilization{namespace="default",pod=~"lumen-.*"} < 10)'
        wanted["spec"]["triggers"][0]["metadata"].pop("query")
    assert given == wanted
    assert "PodDisruptionBudget" in found


def test_the_cluster_waits_for_the_drain_that_is_set(tmp_path: Path) -> None:
    for server, seconds in (({}, 30), ({"unready_seconds": 20.5, "drain_seconds": 60}, 96)):
        found = render(tmp_path, {"config": {"server": server}})
        assert pod_of(found)["terminationGracePeriodSeconds"] == seconds
        said = settings_of(found, tmp_path).server
        assert said.unready_seconds + said.drain_seconds + 15 <= seconds


def test_other_settings_begin_new_pods(tmp_path: Path) -> None:
    def checksum(values: dict[str, Any]) -> str:
        found = render(tmp_path, values)["Deployment"]["spec"]["template"]["metadata"]
        return str(found["annotations"]["checksum/config"])

    first = checksum({})
    assert first == checksum({"replicas": 5})
    assert first != checksum({"config": {"server": {"drain_seconds": 11}}})


def test_two_releases_do_not_share_pods(tmp_path: Path) -> None:
    one, other = (render(tmp_path, {}, release) for release in ("lumen", "texts"))
    assert other["Deployment"]["metadata"]["name"] == "texts-lumen"
    assert other["Service"]["spec"]["selector"] != one["Service"]["spec"]["selector"]
    for found in (one, other):
        labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
        assert found["Service"]["spec"]["selector"] == labels
        assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_tls_keys_and_other_ports(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "tls": {"secret": "pair", "only": True},
        "keys": {"secret": "clients"},
        "config": {"server": {"port": 9000, "metrics_port": 9002, "max_request_bytes": 8388608}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    }
    found = render(tmp_path, values)
    pod, settings = pod_of(found), settings_of(found, tmp_path)
    (container,) = pod["containers"]
    assert settings.server.tls.only
    assert settings.server.max_request_bytes == 8388608
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "https": settings.server.tls.port,
        "metrics": settings.server.metrics_port,
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (pair,) = settings.server.tls.certificates
    assert pair.cert == f"{mounts['tls']}/tls.crt"
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert [port["name"] for port in found["Service"]["spec"]["ports"]] == ["https", "metrics"]
    assert found["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == "metrics"
    assert container["env"][0]["name"] == "LUMEN_SERVER__KEYS"
    annotations = found["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert not any(name.startswith("prometheus.io/") for name in annotations)
    (address,) = (word for word in found["Pod"]["spec"]["containers"][0]["args"] if "//" in word)
    assert address == "https://lumen:8443"


def test_models_of_a_claim_and_of_a_container(tmp_path: Path) -> None:
    claimed = pod_of(render(tmp_path, {"models": {"claim": "models", "subPath": "mine"}}))
    (volume,) = (one for one in claimed["volumes"] if one["name"] == "models")
    assert volume["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    (mount,) = (m for m in claimed["containers"][0]["volumeMounts"] if m["name"] == "models")
    assert mount == {
        "name": "models", "mountPath": "/models", "readOnly": True, "subPath": "mine"
    }  # fmt: skip
    fetch = {"image": "curl", "command": ["curl"], "securityContext": {"runAsUser": 7}}
    fetched = pod_of(render(tmp_path, {"models": {"init": fetch, "sizeLimit": "2Gi"}}))
    (init,) = fetched["initContainers"]
    assert init["volumeMounts"] == [{"name": "models", "mountPath": "/models"}]
    assert init["securityContext"]["runAsUser"] == 7
    assert init["securityContext"]["readOnlyRootFilesystem"]
    (volume,) = (one for one in fetched["volumes"] if one["name"] == "models")
    assert volume["emptyDir"] == {"sizeLimit": "2Gi"}


def test_whatever_else_a_user_says(tmp_path: Path) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    found = render(tmp_path, {
        "image": {"repository": "r.example.org/lumen", "digest": f"sha256:{'0' * 64}",
                  "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 1,
        "labels": {"team": "a"}, "podLabels": {"tier": "b"}, "podAnnotations": {"note": "c"},
        "env": [{"name": "LUMEN_LOG__LEVEL", "value": "debug"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "volumes": [{"name": "mine", "hostPath": {"path": "/srv"}}],
        "volumeMounts": [{"name": "mine", "mountPath": "/srv"}],
        "cache": {"hostPath": {"path": "/var/cache/lumen"}},
        "topologySpreadConstraints": [spread],
        "nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "serviceAccountName": "lumen", "priorityClassName": "high",
        "service": {"type": "LoadBalancer", "annotations": {"note": "d"}},
        "ingress": {"enabled": True, "className": "nginx", "hosts": [{"host": "m.example.org"}],
                    "tls": [{"secretName": "s", "hosts": ["m.example.org"]}]},
    })  # fmt: skip
    pod = pod_of(found)
    assert pod["containers"][0]["image"] == f"r.example.org/lumen@sha256:{'0' * 64}"
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    labels = found["Deployment"]["spec"]["selector"]["matchLabels"]
    (made,) = pod["topologySpreadConstraints"]
    assert made == {**spread, "labelSelector": {"matchLabels": labels}}
    assert "PodDisruptionBudget" not in found  # of one pod: no node could be emptied
    (rule,) = found["Ingress"]["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["port"] == {"name": "http"}
    assert all(
        one["metadata"]["labels"]["team"] == "a"
        for one in found.values()
        if "labels" in one["metadata"]
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replica": 3}, "replica"),
        ({"image": {"tagg": "x"}}, "tagg"),
        ({"autoscaling": {"kind": "vpa"}}, "kind"),
        ({"config": {"server": {"drain_seconds": "10s"}}}, "drain_seconds"),
        ({"models": {"claim": "a", "init": {"image": "b"}}}, "expected one of them"),
        ({"tls": {"only": True}}, "no tls.secret"),
        ({"serviceMonitor": {"enabled": True}, "config": {"server": {"metrics_port": 0}}}, "is 0"),
    ],
)
def test_a_wrong_value_is_said(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    done = template(tmp_path, values)
    assert done.returncode != 0
    assert said in done.stderr
