"""The main thread while the server runs: it waits for signals, obeys them, and watches the engine.

Used by server.py. Each part of the loop runs under the guard (guard.py): an exception ends nothing.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from lumen_uring.control.control import Control
from lumen_uring.control.live_models import LiveModels
from lumen_uring.errors import ConfigError, EngineError, LumenError
from lumen_uring.guard import Guard
from lumen_uring.metrics.server import MetricsServer
from lumen_uring.ring.engine import Engine
from lumen_uring.ring.signals import SignalQueue
from lumen_uring.serving.budgets import Keeper
from lumen_uring.serving.certificates import Certificates
from lumen_uring.serving.logs import Journal
from lumen_uring.serving.notify import Notifier
from lumen_uring.serving.processes import Processes
from lumen_uring.serving.reload_report import Report
from lumen_uring.serving.resolver import Resolver
from lumen_uring.serving.workers import Change
from lumen_uring.settings import reload
from lumen_uring.settings.schema import Config

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGXCPU)
_STEP_S: Final = 0.1
# The main thread checks this often that the engine runs, while no signal has asked it to stop.
_WATCH_S: Final = 1.0


class MainLoop:
    """The main thread while the server runs: waits for signals and watches the engine."""

    def __init__(
        self,
        config: Config,
        reread: Callable[[], Config],
        journal: Journal,
        notifier: Notifier,
        signals: SignalQueue,
        engine: Engine,
        metrics: MetricsServer | None,
        processes: Processes,
        live: LiveModels,
        control: Control,
        report: Report,
        guard: Guard,
        certificates: Certificates | None = None,
        budgets: Keeper | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._processes = processes
        self._config = config
        self._reread = reread
        self._journal = journal
        self._notifier = notifier
        self._signals = signals
        self._engine = engine
        self._metrics = metrics
        self._live = live
        self._control = control
        self._report = report
        self._guard = guard
        self._certificates = certificates
        self._budgets = budgets
        self._resolver = resolver
        self._change: Change | None = None  # of the workers, which a reload waits for
        self._asked_again = False  # for another reload meanwhile

    def until_the_end(self) -> int:
        """Returns the exit status."""
        guard = self._guard
        while True:
            look_s = _WATCH_S
            with guard.part("processes"):
                look_s = min(look_s, self._processes.look())
            number = self._next_signal(look_s)
            if self._engine.wait(0):
                self._journal.log("error", "The engine ended by itself.")
                return 1
            if number in ENDING:
                return self._end(number)
            with guard.part("signals"):
                self._obey(number)
            with guard.part("workers"):
                self._look_at_change()
            with guard.part("news"):
                if news := self._engine.news():
                    self._journal.log("error", news)
            with guard.part("certificates"):
                if self._certificates is not None:
                    self._certificates.look(self._engine)
            with guard.part("budgets"):
                if self._budgets is not None:
                    self._budgets.look()
            with guard.part("resolver"):
                if self._resolver is not None:
                    self._resolver.look()
            with guard.part("control"):
                self._control.look()
            with guard.part("notifier"):
                if self._notifier.watchdog_s and self._engine.heartbeat():
                    self._notifier.alive()

    def _next_signal(self, seconds: float) -> signal.Signals | None:
        try:
            return self._signals.wait(seconds)
        except Exception as error:
            self._guard.failed("signals", error)
            time.sleep(_STEP_S)  # it may fail again at once
            return None

    def _obey(self, number: signal.Signals | None) -> None:
        """Does what a signal asks for that does not end the server."""
        if number == signal.SIGHUP and self._change is not None:
            self._asked_again = True
        elif number == signal.SIGHUP:
            self._notifier.reloading()
            self._carry_out(self._reload)
        elif number == signal.SIGUSR1:
            # While the workers change, the log is that of the settings to come.
            self._reopen(self._config if self._change is None else self._change.plan.config)
            self._engine.reopen_files(self._config)
        elif number is not None and number != signal.SIGCHLD:
            self._journal.log("debug", f"{number.name} is ignored.")

    def _carry_out(self, part: Callable[[], None]) -> None:
        """Does a part of a reload, and says where it is the last one."""
        try:
            part()
        except Exception as error:
            self._change = None
            self._reload_failed(f"The reload failed: {type(error).__name__}: {error}")
        if self._change is None:
            self._notifier.ready("Reloaded.")

    def _look_at_change(self) -> None:
        """Goes on with a reload that waited for the workers; then with the next one."""
        if self._change is None or self._change.is_going_on():
            return
        change, self._change = self._change, None
        self._carry_out(lambda: self._end_reload(change))
        if self._asked_again:
            self._asked_again = False
            self._obey(signal.SIGHUP)

    def _reload(self) -> None:
        """Applies the settings that a reload may change; a wrong file changes nothing."""
        current = self._config.with_entries(self._live.models()).with_virtual(self._live.virtual())
        try:
            wanted = self._reread()
            plan = reload.plan(current, wanted, self._control.listed())
        except ConfigError as error:
            self._reload_failed(f"The reload failed, the old settings stay in force:\n{error}")
            return
        try:
            self._journal.reopen(plan.config.log)
        except ConfigError as error:
            self._reload_failed(f"{error} The old settings stay in force.")
            return
        try:
            self._live.reconfigure(plan.config)
        except LumenError as error:
            with suppress(LumenError):  # a part of them may be in force
                self._live.reconfigure(current)
            self._reload_failed(f"The reload failed, only the log was opened again: {error}")
            return
        change = Change(self._change_certificates(plan), wanted.broken)
        if plan.config.engine == self._config.engine:
            self._end_reload(change)
        else:
            change.begin(self._engine, self._guard)
            self._change = change

    def _end_reload(self, change: Change) -> None:
        """The second part, once the engine has followed, or has refused to."""
        plan = change.plan
        if change.is_held_up:
            self._journal.log("warning", "A Run of seconds holds up the change of the engine.")
        if change.refusal:
            plan = reload.without_engine(plan, self._config.engine, change.refusal)
            self._live.reconfigure(plan.config)
        if self._metrics is not None:
            self._metrics.set_hosts(plan.config.server.hosts)
        if self._resolver is not None:
            self._resolver.change(plan.config.upstreams)
        self._config = plan.config
        self._engine.reopen_files(plan.config)
        # Of models whose files have changed the report tells as they are loaded.
        summary = f"Reloaded: {', '.join(plan.changed) or 'no setting has changed'}."
        for sentence in plan.refused:
            self._journal.log("warning", sentence)
        self._journal.log("info", summary)
        number = self._report.begin([summary, *plan.refused], failed=False, goes_on=True)
        self._control.list_models(
            plan.models,
            plan.virtual,
            lambda lines: self._report.end(number, lines),
            change.broken,
            lambda line: self._report.add(number, line),
        )

    def _change_certificates(self, plan: reload.Plan) -> reload.Plan:
        """Reads the certificates again, or says why the old ones stay."""
        before, tls = self._config.server.tls, plan.config.server.tls
        if self._certificates is None or tls is None:
            return plan
        try:
            self._certificates.reload(tls, self._engine)
        except (ConfigError, EngineError) as error:
            return reload.without_certificates(plan, before, str(error))
        return plan

    def _reload_failed(self, sentence: str) -> None:
        self._journal.log("error", sentence)
        self._report.begin([sentence], failed=True, goes_on=False)

    def _reopen(self, config: Config) -> bool:
        """Opens the log's file again; False when it cannot be opened."""
        try:
            self._journal.reopen(config.log)
        except ConfigError as error:
            self._journal.log("error", f"{error} The old settings stay in force.")
            return False
        return True

    def _end(self, number: signal.Signals) -> int:
        settings, engine = self._config.server, self._engine
        unready_s = settings.unready_seconds if number == signal.SIGTERM else 0.0
        drain_s = settings.drain_seconds
        self._notifier.stopping(
            unready_s + drain_s + 3 * _WATCH_S, f"Draining for at most {drain_s:g} s."
        )
        # SIGTERM may come from an orchestrator whose load balancers lag; at Ctrl-C a person waits.
        if unready_s:
            engine.unready()
            self._journal.say(f"Readiness is off; the server still serves for {unready_s:g} s.")
            self._wait_for_another(unready_s)
        # First the drain, then the line: its reader may be gone or slow.
        engine.stop(drain_s)
        self._control.close()
        self._journal.say(
            f"Draining for at most {drain_s:g} s; a second signal ends the server at once."
        )
        # The engine ends after drain_s; the margin is for a Run that cannot be interrupted.
        for _ in range(math.ceil((drain_s + 2 * _WATCH_S) / _STEP_S)):
            if engine.wait(_STEP_S):
                return 0
            if self._signals.take(ENDING) is not None:
                engine.stop(0)
                # A third signal kills the process, even while the engine is busy.
                self._signals.give_back(ENDING)
                return 0
        return self._leave_behind()

    def _wait_for_another(self, seconds: float) -> None:
        """Waits until the time is over, or until a second signal ends the server."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            if self._signals.wait(min(left_s, _WATCH_S)) in ENDING or self._engine.wait(0):
                return

    def _leave_behind(self) -> NoReturn:
        """Ends the process while a model still runs: its thread cannot be stopped."""
        self._journal.say("A model has not returned: the server ends without it.", "warning")
        with suppress(OSError):
            Path(self._engine.info().stats_path).unlink()
        os._exit(0)
