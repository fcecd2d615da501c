"""The certificates of a server that speaks TLS: read from their files, and again when these change.

Used by server.py at the start and by main_loop.py, on the main thread. Files are compared by what
stat says of them, links followed: Kubernetes exchanges a folder behind a link. A certificate and a
key that do not fit together, as while only one of them has been exchanged, change nothing; they are
looked at again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.ring.certificates import Certificate, CertificateInfo, look_at
from lumen_uring.ring.engine import Engine
from lumen_uring.serving.doctor import NOTE, OK, PROBLEM, Finding
from lumen_uring.settings.tls import TlsConfig

WARN_DAYS: Final = 14
_DAY_S: Final = 86_400
_BYTES_MAX: Final = 1 << 20
# Inode, size and time of change of each file; None where there is none.
Stamps = tuple[tuple[int, int, int] | None, ...]


def read(config: TlsConfig) -> tuple[list[Certificate], bytes | None]:
    """Reads the certificates, and the authorities of clients' ones.

    Args:
        config: the settings.

    Raises:
        ConfigError: a file cannot be read.
    """
    found = []
    for index, one in enumerate(config.certificates):
        place = f"server.tls.certificates[{index}]"
        chain, key = _file(f"{place}.cert", one.cert), _file(f"{place}.key", one.key)
        found.append(Certificate(chain, key, one.cert, one.hosts))
    authorities = config.client_ca
    return found, None if authorities is None else _file("server.tls.client_ca", authorities)


def _file(place: str, name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(_BYTES_MAX)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{place}: expected a file in PEM form, found {name}: {reason}") from None


def _stamps(config: TlsConfig) -> Stamps:
    names = [name for one in config.certificates for name in (one.cert, one.key)]
    names += [] if config.client_ca is None else [config.client_ca]
    return tuple(_stamp(name) for name in names)


def _stamp(name: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(name)  # of the link's target
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def problem(info: CertificateInfo, now_s: float) -> str | None:
    """What is wrong with a certificate's time, or will be soon; None: nothing.

    Args:
        info: what it says.
        now_s: unix time; seconds.

    >>> problem(CertificateInfo(0, 100 * 86_400, False, ()), 90 * 86_400)
    'ends in 10 days'
    >>> problem(CertificateInfo(0, 100 * 86_400, False, ()), 110 * 86_400)
    'ended 10 days ago: clients refuse it'
    """
    left_days = (info.not_after - now_s) / _DAY_S
    if now_s < info.not_before:
        return "is not valid yet: is the clock right?"
    if left_days < 0:
        return f"ended {-left_days:.0f} days ago: clients refuse it"
    return f"ends in {left_days:.0f} days" if left_days < WARN_DAYS else None


def findings(config: TlsConfig) -> list[Finding]:
    """What `lumen doctor` says of the certificates: their times, keys and rights.

    Args:
        config: the settings.
    """
    try:
        found, _authorities = read(config)
        infos = [look_at(one) for one in found]
    except (ConfigError, EngineError) as error:
        return [Finding(PROBLEM, "TLS", str(error), "see docs/DEPLOY.md, TLS")]
    lines = []
    for one, settings, info in zip(found, config.certificates, infos, strict=True):
        until = time.strftime("%Y-%m-%d", time.gmtime(info.not_after))
        said = f"{one.source}: until {until}, for {' '.join(one.hosts or info.names) or 'no name'}"
        cure = ""
        if (wrong := problem(info, time.time())) is not None:
            said, cure = f"{said}; it {wrong}", "renew it"
        elif info.is_rsa:
            said += "; its key is RSA's: handshakes take three times as long as with P-256"
            cure = "have the next one made with a key of P-256 (ECDSA)"
        elif os.stat(settings.key).st_mode & 0o077:
            said += f"; other users may read {settings.key}"
            cure = f"chmod 600 {settings.key}, where it is not mounted so"
        is_over = info.not_after < time.time()
        level = PROBLEM if is_over else NOTE if cure else OK
        lines.append(Finding(level, "certificate", said, cure))
    return lines


class Certificates:
    """Those of one server. Main thread only.

    Args:
        config: the settings.
        log: takes a level and a sentence.
    """

    def __init__(self, config: TlsConfig, log: Callable[[str, str], None]) -> None:
        self._config = config
        self._log = log
        self._stamps: Stamps = ()
        self._refused: Stamps = ()
        self._warned_day = 0
        self._infos: tuple[tuple[str, CertificateInfo], ...] = ()

    def expiries(self) -> tuple[tuple[str, int], ...]:
        """Each certificate's file, and the unix time in seconds when it ends. Any thread."""
        return tuple((source, info.not_after) for source, info in self._infos)

    def put(self, engine: Engine) -> None:
        """Has the engine show what the files hold.

        Raises:
            ConfigError: a file cannot be read.
            EngineError: a certificate cannot be used, or the system has no OpenSSL 3.
        """
        stamps = _stamps(self._config)  # before: a change from here on is one
        found, authorities = read(self._config)
        engine.set_tls(self._config, found, authorities)
        self._stamps = stamps
        self._infos = tuple((one.source, look_at(one)) for one in found)
        self._warned_day = 0

    def reload(self, config: TlsConfig, engine: Engine) -> None:
        """The same for other settings, whose port is the old one; or for files that changed.

        Raises:
            ConfigError, EngineError: as `put`; the old certificates stay.
        """
        before = self._config
        self._config = config
        try:
            self.put(engine)
        except (ConfigError, EngineError):
            self._config = before
            raise

    def look(self, engine: Engine) -> None:
        """Puts files in force that changed, and warns of certificates that end soon."""
        stamps = _stamps(self._config)
        if stamps not in (self._stamps, self._refused):
            try:
                self.put(engine)
            except (ConfigError, EngineError) as error:
                self._refused = stamps
                self._log("error", f"The certificates stay as they were: {error}")
            else:
                self._log("info", "Other certificates are shown from now on.")
        day = int(time.time() // _DAY_S)
        if day != self._warned_day:
            self._warned_day = day
            for source, info in self._infos:
                if (said := problem(info, time.time())) is not None:
                    self._log("warning", f"The certificate {source} {said}.")


def of_settings(config: TlsConfig | None, log: Callable[[str, str], None]) -> Certificates | None:
    """The certificates of a server; None: it does not speak TLS."""
    return None if config is None else Certificates(config, log)
