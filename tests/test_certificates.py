"""The certificates of a server while it runs: which files are looked after when others are refused.

The certificates are real ones, and a stand-in for the engine remembers which it was given;
tests/e2e/http/test_e2e_tls.py has servers that show them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.ring.certificates import Certificate, make_certificate
from lumen_uring.serving.certificates import Certificates
from lumen_uring.settings.tls import TlsConfig


class Engine:
    """Shows the last certificate that it was given; refuses those of the files in `refused`."""

    def __init__(self) -> None:
        self.shown: list[bytes] = []
        self.refused: set[str] = set()

    def set_tls(
        self, _config: TlsConfig, found: Sequence[Certificate], _authorities: bytes | None
    ) -> None:
        if found[0].source in self.refused:
            raise EngineError(f"{found[0].source} does not fit its key")
        self.shown.append(found[0].certificate)


def issue(file: Path) -> bytes:
    """Puts a new certificate and its key in the places of the old ones, and returns it."""
    certificate, key = make_certificate(["DNS:localhost"])
    for suffix, content in ((".crt", certificate), (".key", key)):
        file.with_suffix(".new").write_bytes(content)
        os.replace(file.with_suffix(".new"), file.with_suffix(suffix))
    return certificate


def settings(file: Path) -> TlsConfig:
    pair = {"cert": str(file.with_suffix(".crt")), "key": str(file.with_suffix(".key"))}
    return TlsConfig.model_validate({"port": 8443, "certificates": [pair]})


@pytest.mark.parametrize(("is_there", "error"), [(False, ConfigError), (True, EngineError)])
def test_after_a_reload_that_is_refused_the_files_in_force_are_looked_at(
    c_library: None, tmp_path: Path, is_there: bool, error: type[Exception]
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    first = issue(mine)
    if is_there:
        issue(other)
    engine, said = Engine(), list[str]()
    certificates = Certificates(settings(mine), lambda _level, text: said.append(text))
    certificates.put(engine)  # type: ignore[arg-type]
    engine.refused = {str(other.with_suffix(".crt"))}
    with pytest.raises(error, match=r"other\.crt"):
        certificates.reload(settings(other), engine)  # type: ignore[arg-type]
    second = issue(mine)
    certificates.look(engine)  # type: ignore[arg-type]
    assert engine.shown == [first, second]
    assert said == ["Other certificates are shown from now on."]
    assert certificates.expiries()[0][0] == str(mine.with_suffix(".crt"))
