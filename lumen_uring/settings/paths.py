"""Which settings are paths of files or folders, which a settings file gives relative to itself.

Used by config.py before the settings are checked: anything may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lumen_uring.settings import warmup

Place = tuple["str | int", ...]
_PATHS: Final = (
    ("server", "unix_socket"),
    ("engine", "telemetry_csv_path"),
    ("log", "path"),
    ("log", "access_path"),
    ("budgets", "path"),
)


def of(data: Mapping[str, Any]) -> Iterator[Place]:
    """The places of all settings that are paths, in the sections that the settings have.

    Args:
        data: settings as they were written, not checked yet.
    """
    for section, name in _PATHS:
        if isinstance(data.get(section), dict):
            yield (section, name)
    server = data.get("server")
    tls = server.get("tls") if isinstance(server, dict) else None
    if isinstance(tls, dict):
        yield ("server", "tls", "client_ca")
        certificates = tls.get("certificates")
        for index, one in enumerate(certificates if isinstance(certificates, list) else ()):
            for name in ("cert", "key") if isinstance(one, dict) else ():
                yield ("server", "tls", "certificates", index, name)
    upstreams = data.get("upstreams")
    for name, upstream in upstreams.items() if isinstance(upstreams, dict) else ():
        if isinstance(upstream, dict):
            for setting in ("key_file", "ca", "cert", "cert_key"):
                yield ("upstreams", name, setting)
    repository = data.get("repository")
    folders = repository.get("paths") if isinstance(repository, dict) else None
    for index in range(len(folders) if isinstance(folders, list) else 0):
        yield ("repository", "paths", index)
    ensembles = data.get("ensembles")
    for index, ensemble in enumerate(ensembles if isinstance(ensembles, list) else ()):
        if isinstance(ensemble, dict):
            yield ("ensembles", index, "labels")
    models = data.get("models")
    for index, model in enumerate(models if isinstance(models, list) else ()):
        if isinstance(model, dict):
            yield from (("models", index, "path"), ("models", index, "labels"))
            sequences = model.get("sequences")
            files = sequences.get("initial_state") if isinstance(sequences, dict) else None
            for name in files if isinstance(files, dict) else ():
                yield ("models", index, "sequences", "initial_state", name)
            if isinstance(model.get("text"), dict):
                yield ("models", index, "text", "tokenizer")
            yield from (("models", index, *place) for place in _warmup_paths(model))


def _warmup_paths(model: dict[str, Any]) -> Iterator[Place]:
    requests = model.get("warmup")
    for index, request in enumerate(requests if isinstance(requests, list) else ()):
        inputs = request.get("inputs") if isinstance(request, dict) else None
        for name, tensor in inputs.items() if isinstance(inputs, dict) else ():
            if isinstance(tensor, dict) and tensor.get("data") not in warmup.FILLS:
                yield ("warmup", index, "inputs", name, "data")
