"""TLS: the certificates that a server shows, and those it asks of its clients.

Read as the other sections of schema.py. The files themselves are read at the start, at a reload and
when they change (serving/certificates.py).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from lumen_uring.settings.types import PathText, Section, as_tuple

CERTIFICATES_MAX: Final = 32  # LUMEN_CERTIFICATES_MAX in lumen_config.h
_HOST_PATTERN: Final = r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_File = Annotated[PathText, Field(min_length=1)]


class CertificateConfig(Section):
    """A certificate with its chain, and its private key, as files in PEM form."""

    cert: _File = Field(description="the path of a file in PEM form: the certificate, its chain")
    key: _File = Field(description="the path of a file in PEM form, without a password")
    hosts: Annotated[
        tuple[Annotated[str, Field(pattern=_HOST_PATTERN)], ...], BeforeValidator(as_tuple)
    ] = Field(
        default=(),
        max_length=256,
        description="a list of host names such as lumen.example.org or *.example.org",
    )


class TlsConfig(Section):
    """A port where clients speak TLS."""

    port: int = Field(default=8443, ge=0, le=65535, description="a port number, 0..65535")
    only: bool = Field(default=False, description="true | false")
    certificates: Annotated[tuple[CertificateConfig, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1,
        max_length=CERTIFICATES_MAX,
        description=f"a list of 1..{CERTIFICATES_MAX} certificates, each with cert and key",
    )
    clients: Literal["any", "asked", "certified"] = Field(
        default="any", description="any | asked | certified"
    )
    client_ca: _File | None = Field(
        default=None, description="null, or the path of a file in PEM form with authorities"
    )
