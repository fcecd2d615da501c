"""TLS: what the tools that audits use say of a server with its defaults."""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import graphs
import needs
import pytest
import tls
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from harness import Canary, Server

HOST: Final = "localhost"
SCAN_S: Final = 240.0
AUTHORITYS_USE: Final = x509.KeyUsage(
    False, False, False, False, False, True, True, False, False
)  # to sign certificates and lists


def issued(folder: Path) -> tuple[Path, Path, Path]:
    """An authority, a certificate of it as they are issued today, for 90 days and with the
    extensions that RFC 5280 asks for (trustme's are others), and its key."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in ("authority", HOST)]
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    made = []
    for number, (key, name) in enumerate(zip(keys, names, strict=True)):
        public, authority = key.public_key(), keys[0].public_key()
        builder = (
            x509.CertificateBuilder(names[0], name, public, x509.random_serial_number())
            .not_valid_before(began)
            .not_valid_after(began + datetime.timedelta(days=90))
            .add_extension(x509.BasicConstraints(number == 0, None), critical=number == 0)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False
            )
        )
        if number == 0:
            builder = builder.add_extension(AUTHORITYS_USE, critical=True)
        else:
            hosts = x509.SubjectAlternativeName([x509.DNSName(HOST)])
            use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
            builder = builder.add_extension(hosts, critical=False).add_extension(use, False)
        made.append(builder.sign(keys[0], hashes.SHA256()))
    ca, cert, secret = (folder / name for name in ("ca.crt", "server.crt", "server.key"))
    for file, one in zip((ca, cert), made, strict=True):
        file.write_bytes(one.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        keys[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return ca, cert, secret


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return issued(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(
    cache: Path, files: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    identity = {"cert": str(files[1]), "key": str(files[2])}
    double = graphs.double(tmp_path_factory.mktemp("models") / "double.onnx")
    settings: dict[str, object] = {
        "server": {"tls": {"port": 0, "certificates": [identity]}},
        "models": [{"name": "double", "path": str(double)}],
    }
    with Server(settings, cache) as running:
        yield running


def said(server: Server, *command: str) -> str:
    """What a tool prints of the port of TLS; other clients are served meanwhile."""
    with Canary(server):
        done = subprocess.run(
            [*command, f"{HOST}:{tls.port_of(server)}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=SCAN_S,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sslyze_finds_mozillas_intermediate_profile(
    server: Server, files: tuple[Path, Path, Path]
) -> None:
    """By its exit status; and none of the attacks that it tries succeeds."""
    tool = needs.program("sslyze")
    found = said(server, tool, "--mozilla_config=intermediate", f"--certinfo_ca_file={files[0]}")
    assert "OK - Compliant." in found
    for attack in ("Not vulnerable to Heartbleed", "Not vulnerable to OpenSSL CCS injection"):
        assert f"OK - {attack}" in found
    assert "VULNERABLE -" not in found


def test_sslscan_finds_nothing_weak(server: Server) -> None:
    """It knows old protocols that Python's library has no more."""
    found = said(server, needs.program("sslscan"), "--no-colour")
    protocols = dict(re.findall(r"^((?:SSL|TLS)v[\d.]+) +(enabled|disabled)$", found, re.MULTILINE))
    old = dict.fromkeys(("SSLv2", "SSLv3", "TLSv1.0", "TLSv1.1"), "disabled")
    assert protocols == old | {"TLSv1.2": "enabled", "TLSv1.3": "enabled"}
    ciphers = re.findall(r"^(Preferred|Accepted) +TLSv\S+ +(\d+) bits +(\S+)", found, re.MULTILINE)
    assert len(ciphers) == 6
    for place, bits, name in ciphers:
        assert re.search("GCM|CHACHA20", name), name
        assert (place == "Preferred") == (bits == "128"), "AES-128 is first: it is the fastest"
    assert "Session renegotiation not supported" in found
    assert len(re.findall(r"TLSv1.\d not vulnerable to heartbleed", found)) == 2
