"""Runs one server: from checked settings to the last drained request.

Called by `lumen serve`, on the main thread, which does nothing else. Signals are blocked and read
from a queue, so that no Python handler interrupts a call and the engine's threads inherit the mask.
Nothing here is on a request's path.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from lumen_uring.control.calls import kinds_of
from lumen_uring.control.control import Control
from lumen_uring.control.live_models import LiveModels
from lumen_uring.control.watch import Look, files_of
from lumen_uring.errors import ConfigError, EngineError, LumenError, MetricsError
from lumen_uring.guard import Guard
from lumen_uring.loading import add as loading
from lumen_uring.loading.model_cache import Trimmer, labels, resolve, trim
from lumen_uring.loading.prepare import Preparer, nursery_for
from lumen_uring.metrics.agent import agent
from lumen_uring.metrics.facts import facts_of
from lumen_uring.metrics.server import MetricsServer
from lumen_uring.ring import onnxruntime_path
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.signals import SignalQueue
from lumen_uring.serving import budgets, upstreams
from lumen_uring.serving.banner import announce, banner, warnings
from lumen_uring.serving.certificates import Certificates, of_settings
from lumen_uring.serving.logs import Journal
from lumen_uring.serving.main_loop import ENDING, MainLoop
from lumen_uring.serving.notify import Notifier
from lumen_uring.serving.processes import Processes, try_isolated
from lumen_uring.serving.reload_report import Report, report_path
from lumen_uring.serving.resolver import Resolver
from lumen_uring.serving.start_files import Files, Problems, check_written, find
from lumen_uring.serving.starting import Starting
from lumen_uring.serving.traces import Exporter
from lumen_uring.serving.triton_settings import TritonSettings
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.schema import Config
from lumen_uring.settings.without import CURE, starts_without, without

# By default these end the process, which then logs nothing and leaves its files behind.
_TAKEN: Final = (
    *ENDING,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGCHLD,  # a model's process has ended
)


class Checked(NamedTuple):
    """What a check found: a line for each model and note, and a line for each model that cannot be
    served, where the server starts without it."""

    lines: list[str]
    unserved: list[str]


def check(config: Config) -> Checked:
    """Loads everything that the settings name, as a start would, and serves nothing.

    Args:
        config: checked settings.

    Returns:
        Its lines, and those of the models that cannot be served.

    Raises:
        LumenError: a start would fail; the message lists all problems.
    """
    try:
        check_written(config)
        files, problems = _find_files(config)
        notes = [*config.notes]
        try_isolated(config, files, problems, Preparer(), lambda: False)
        with Engine(config, onnxruntime_path.find()) as engine:
            for _model in _load_models(engine, config, files, notes, problems):
                continue
    except _StartWithoutError as left:
        return check(left.config)
    Journal(config.log)
    lines = [
        *(f"model {model.name}: {path}" for model, path, _names in files),
        *(f"experts {entry.name}" for entry in config.experts),
        *(f"ensemble {entry.name}" for entry in config.ensembles),
        *(
            f"model {here}: {there} of upstream {name}"
            for name, entry in config.upstreams.items()
            for here, there in entry.models.items()
        ),
        *(f"note: {note}" for note in notes),
    ]
    return Checked(lines, [f"not served: {one.name}: {one.reason}" for one in config.broken])


def run(config: Config, reread: Callable[[], Config] | None = None) -> int:
    """Serves until a signal ends it.

    Args:
        config: checked settings.
        reread: reads them again, for SIGHUP; may raise ConfigError. None: they do not change.

    Returns:
        The exit status: 0 after a signal, 1 when the engine ended by itself.

    Raises:
        ConfigError: a file that is to be read or written cannot be.
        LibraryError: the C library or ONNX Runtime is missing.
        EngineError: the engine refused to start.
        MetricsError: the metrics page cannot listen on the port that was set.
    """
    try:
        journal = Journal(config.log)
    except ConfigError:
        check_written(config)  # names what else is wrong
        raise
    reread = reread or (lambda: config)
    kept = _Kept(journal, {}, Preparer(nursery=nursery_for(config)))
    try:
        check_written(config)
        kept.preparer.fork()
        while True:
            try:
                return _serve(config, reread, kept)
            except _StartWithoutError as left:  # noqa: PERF203 -- before anybody was served
                config = left.config
    except LumenError as error:
        if not journal.is_for_people or config.log.path is not None:
            journal.log("error", str(error))
        raise
    finally:
        kept.preparer.stop()


class _Kept(NamedTuple):
    """What a start without some of the models has from the one before."""

    journal: Journal
    looks: dict[str, Look]  # at the models' files
    preparer: Preparer


class _StartWithoutError(Exception):
    """Models cannot be served, and the server is to start without them: from the beginning, since
    the others' places, slots and rights follow from which there are."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config


def _serve(config: Config, reread: Callable[[], Config], kept: _Kept) -> int:
    # The metrics page's numpy would start a thread per core. Set before threads read it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    began_s = time.monotonic()
    journal = kept.journal
    # Before they are read: a change from here on is one.
    kept.looks.update({model.name: files_of(model) for model in config.models})
    files, problems = _find_files(config)
    notes = [*config.notes]
    notifier = Notifier()
    guard = Guard(journal.log)
    certificates = of_settings(config.server.tls, journal.log)
    # The page closes before the engine, which removes the statistics file.
    with (
        SignalQueue(_TAKEN) as signals,
        Processes(journal, guard) as processes,
        Engine(config, onnxruntime_path.find()) as engine,
        _metrics(config, notes) as metrics,
        Exporter(config.traces, engine, guard) as exporter,
        agent(config.server.host, config.server.agent_port, engine.report_load, guard),
    ):
        with Starting(journal, notifier, guard, ENDING) as starting:
            if not _start(
                config, files, notes, problems, engine, processes, signals, kept, starting
            ):
                return 0
            engine.set_metrics_port(0 if metrics is None else metrics.port)
            engine.open_errands(kinds_of(config), config.repository.upload_bytes)
            starting.step("Warming up")
            _listen(config, engine, certificates)
        # From here on clients are served: a signal is the main loop's, which drains.
        ready_s = time.monotonic() - began_s
        info = engine.info()
        description = engine.describe()
        live = _live_models(engine, config, journal, info.ort_version, kept, processes)
        control = Control(engine, live, journal.log, TritonSettings(live, journal).answer, guard)
        keeper = budgets.Keeper(config.budgets.path, engine)
        if metrics is not None:
            facts = facts_of(
                info, description, live.states.rows, guard,
                certificates.expiries if certificates else tuple, keeper.rows, exporter.exemplars,
                engine.report_load, engine.info)  # fmt: skip
            metrics.start(Path(info.stats_path), facts, os.getpid())
        notes += warnings(config, info)
        report = Report(report_path(Path(info.stats_path)) if info.stats_path else None)
        watch = MainLoop(
            config, reread, journal, notifier, signals, engine, metrics, processes, live, control,
            report, guard, certificates, keeper, Resolver(engine, config.upstreams, guard),
        )  # fmt: skip
        try:
            control.start()  # folders are watched before anybody reads that the server is ready
            lines = banner(config, info, description, notes, ready_s, _address(metrics))
            announce(journal, lines, (*notes, *info.notes), config)
            notifier.ready(lines[0])
            return watch.until_the_end()
        finally:
            control.close()
            report.close()
            with guard.part("budgets"):
                keeper.look()


def _start(
    config: Config,
    files: Files,
    notes: list[str],
    problems: Problems,
    engine: Engine,
    processes: Processes,
    signals: SignalQueue,
    kept: _Kept,
    starting: Starting,
) -> bool:
    """Has the engine and the isolated models' processes hold all models.

    Returns:
        False when a signal ended it.
    """

    def is_over() -> bool:
        return signals.take(ENDING) is not None

    starting.step("Trying models with a process of their own")
    if not try_isolated(config, files, problems, kept.preparer, is_over):
        return False
    for name in _load_models(engine, config, files, notes, problems):
        starting.step(f"Loading model {name}")
        if is_over():
            return False
    starting.step("Starting the models' processes")
    if not processes.start(engine, is_over):
        return False
    if config.repository.strict_readiness and any(one.is_wanted for one in config.broken):
        engine.hold_ready(True)
    return True


def _live_models(
    engine: Engine,
    config: Config,
    journal: Journal,
    ort_version: str,
    kept: _Kept,
    processes: Processes,
) -> LiveModels:
    """The models from the start on."""
    trim_now = Trimmer(config.repository.cache_bytes)

    def load(model: ModelConfig, is_gentle: bool) -> list[str]:
        path, names = resolve(model.path), labels(model)
        put = partial(engine.load, gently=is_gentle, expect=processes.expect)
        said = loading.add_model(engine, ort_version, model, path, names, put, is_gentle)
        return [*said, *trim_now()]

    load_virtual = partial(loading.load_virtual, engine)
    return LiveModels(engine, config, load, load_virtual, journal.log, kept.preparer, kept.looks)


def _find_files(config: Config) -> tuple[Files, Problems]:
    """Finds all files, and the problems with those that are not there."""
    files, problems = find(config)
    if not files or starts_without(config):
        _report(config, problems)
    return files, problems


def _report(config: Config, problems: Problems) -> None:
    """Raises all problems as one error, if there are any; or has the server start without these
    models."""
    if not problems:
        return
    if starts_without(config):
        wrong: dict[str, list[str]] = {}
        for name, error in problems:
            wrong.setdefault(name, []).append(str(error))
        entries = {model.name: model for model in config.models}
        broken = [
            Broken(
                name,
                "\n".join(lines),
                version=entries[name].version if name in entries else 1,
                entry=entries.get(name),
            )
            for name, lines in wrong.items()
        ]
        raise _StartWithoutError(without(config, broken))
    errors = [error for _name, error in problems]
    kind = ConfigError if any(isinstance(error, ConfigError) for error in errors) else EngineError
    cure = [CURE] if config.repository.paths else []
    raise kind("\n".join([*map(str, errors), *cure]))


def _load_models(
    engine: Engine, config: Config, files: Files, notes: list[str], problems: Problems
) -> Iterator[str]:
    """Yields the name of each model, then adds it; reports these and other problems together."""
    # Asked of the engine, since the file's name need not hold a version.
    ort_version = engine.info().ort_version
    loaded: dict[str, bytes | None] = {}
    for model, path, names in files:
        yield model.name
        try:
            notes += loading.add_model(engine, ort_version, model, path, names)
        except (ConfigError, EngineError, OSError) as error:
            problem = EngineError(str(error)) if isinstance(error, OSError) else error
            problems.append((model.name, problem))
            continue
        loaded[model.name] = names
    for entry in config.experts:
        yield entry.name
        try:
            loading.add_experts(engine, config, entry, loaded)
        except EngineError as error:
            problems.append((entry.name, error))
            continue
        if loaded.keys() >= {expert.model for expert in entry.experts}:
            loaded[entry.name] = None  # it may be a step
    for ensemble in config.ensembles:
        yield ensemble.name
        try:
            loading.add_ensemble(engine, config, ensemble, loaded)
        except (ConfigError, EngineError) as error:
            problems.append((ensemble.name, error))
    for name, upstream in config.upstreams.items():
        yield f"of upstream {name}"
        places, secrets = upstreams.addresses(name, upstream), upstreams.secrets(name, upstream)
        engine.add_upstream(name, upstream, places, secrets)
    kept = [model for model in config.models if model.name in loaded]
    try:
        compared = loading.check_declared(engine, kept)
    except EngineError as error:
        _blame(config, error)
        raise
    for name, (wrong, said) in compared.items():
        problems += [(name, EngineError(line)) for line in wrong]
        notes += said
    notes += trim(config.repository.cache_bytes)
    _report(config, problems)


def _listen(config: Config, engine: Engine, certificates: Certificates | None) -> None:
    if certificates is not None:
        certificates.put(engine)
    engine.set_fallbacks(config.fallbacks)
    engine.set_traffic(config.traffic)
    engine.set_budgets(config.budgets, budgets.load(config.budgets.path))
    try:
        engine.start()
    except EngineError as error:
        _blame(config, error)
        raise


def _blame(config: Config, error: EngineError) -> None:
    """The models do not fit the server together: it may start without those that the engine
    names."""
    named = [(one.name, error) for one in config.models if f"'{one.name}'" in str(error)]
    if starts_without(config):
        _report(config, [*named])


@contextmanager
def _metrics(config: Config, notes: list[str]) -> Iterator[MetricsServer | None]:
    """Listens for the metrics page; a port that was set and cannot be used is an error."""
    port, host = config.server.metrics_port, config.server.metrics_host
    page: MetricsServer | None = None
    try:
        if port != "auto":
            page = MetricsServer(host, port, config.server.hosts) if port else None
        else:
            page = MetricsServer.on_free_port(host, config.server.hosts, config.server.ports())
    except MetricsError as error:
        if port != "auto":
            raise
        notes.append(str(error))
    try:
        yield page
    finally:
        if page is not None:
            page.close()


def _address(metrics: MetricsServer | None) -> str:
    return "none" if metrics is None else metrics.address
