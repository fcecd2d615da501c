"""TLS of the C library: the certificates that an engine shows, what one says, one for trying.

Used by engine.py, serving/certificates.py, `lumen doctor` and `lumen tls`; never on a request's
path.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lumen_uring.errors import EngineError
from lumen_uring.ring import library, structs
from lumen_uring.ring.handle import Handle
from lumen_uring.ring.ranges import u32
from lumen_uring.settings.tls import TlsConfig

CLIENTS: Final = ("any", "asked", "certified")  # LUMEN_TLS_CLIENTS_*
_PEM_BYTES: Final = 8192


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its chain and its key, both PEM; where it comes from, and the hosts that
    it is for: none are those that it says."""

    certificate: bytes
    key: bytes
    source: str
    hosts: tuple[str, ...] = ()

    def native(self) -> structs.LumenCertificate:
        """lumen_certificate; it keeps alive what it points to."""
        hosts = [host.encode() for host in self.hosts]
        return structs.LumenCertificate(
            certificate=self.certificate,
            key=self.key,
            source=self.source.encode(),
            hosts=(ctypes.c_char_p * len(hosts))(*hosts),
            host_count=len(hosts),
        )


@dataclass(frozen=True, slots=True)
class CertificateInfo:
    """What a certificate says: unix times in seconds, whether its key is RSA's, DNS names."""

    not_before: int
    not_after: int
    is_rsa: bool
    names: tuple[str, ...]


class Tls(Handle):
    """What an engine does about TLS."""

    def set_tls(
        self, config: TlsConfig, certificates: Sequence[Certificate], client_ca: bytes | None
    ) -> None:
        """Before start: clients speak TLS, on a port of its own. Later: other certificates, from
        the next handshake on.

        Args:
            config: the settings; its files are not read here.
            certificates: the first one is for clients that name no host of another.
            client_ca: PEM, the authorities of clients' certificates; None: there are none.

        Raises:
            EngineError: a certificate cannot be used, or the system has no OpenSSL 3.

        Source:
            lumen_set_tls
        """
        natives = [one.native() for one in certificates]
        native = structs.LumenTlsConfig(
            port=u32("server.tls.port", config.port),
            only=int(config.only),
            clients=CLIENTS.index(config.clients),
            certificate_count=len(natives),
            certificates=(structs.LumenCertificate * len(natives))(*natives),
            client_ca=client_ca,
        )
        self._check(self._library.lumen_set_tls(self._open_handle(), ctypes.byref(native)))


def look_at(certificate: Certificate) -> CertificateInfo:
    """What a certificate says.

    Args:
        certificate: its key is not looked at.

    Raises:
        EngineError: it is none, or the system has no OpenSSL 3.

    Source:
        lumen_look_at_certificate
    """
    loaded = library.load()
    info = structs.LumenCertificateInfo()
    native = certificate.native()
    code = loaded.lumen_look_at_certificate(ctypes.byref(native), ctypes.byref(info))
    if code < 0:
        raise EngineError(loaded.lumen_last_error().decode(), code)
    names = tuple(info.names.decode("ascii", "replace").split())
    return CertificateInfo(info.not_before, info.not_after, bool(info.is_rsa), names)


def make_certificate(names: Sequence[str]) -> tuple[bytes, bytes]:
    """A certificate that signs itself, for trying, and its key; both PEM.

    Args:
        names: as OpenSSL writes them, such as DNS:localhost and IP:127.0.0.1.

    Raises:
        EngineError: a name is wrong, or the system has no OpenSSL 3.

    Source:
        lumen_make_certificate
    """
    loaded = library.load()
    certificate = ctypes.create_string_buffer(_PEM_BYTES)
    key = ctypes.create_string_buffer(_PEM_BYTES)
    code = loaded.lumen_make_certificate(",".join(names).encode(), certificate, key, _PEM_BYTES)
    if code < 0:
        raise EngineError(loaded.lumen_last_error().decode(), code)
    return certificate.value, key.value
