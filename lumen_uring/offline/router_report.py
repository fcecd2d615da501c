"""What `lumen fit-router` says at the end: the curve, the verdict, the entry to paste; a plot.

Called by commands/fit_router.py, on the main thread.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import ConfigError

if TYPE_CHECKING:
    from lumen_uring.offline.router_fit import Fit, Interval, Judgement, Point, Samples

_CURVE_ROWS: Final = 12
_BAR: Final = 30
_NOTES_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Report:
    """All that is known at the end."""

    name: str
    feature: str
    of: str
    agreement: float
    light: Path
    dense: Path
    what: str
    samples: Samples
    fit: Fit
    notes: tuple[str, ...]
    processor: str

    def as_json(self) -> dict[str, Any]:
        """The figures under stable names."""
        return {
            "feature": self.feature,
            "of": self.of,
            "wanted_agreement": self.agreement,
            "bound": self.fit.choice.bound,
            "errors_allowed": self.fit.choice.allowed,
            "errors": self.fit.choice.wrong,
            "fitted": _as_json(self.fit.fitted),
            "held_out": _as_json(self.fit.held_out),
            "run_ms": {
                "light": self.samples.light_s * 1e3,
                "dense": self.samples.dense_s * 1e3,
                "feature": self.samples.rule_s * 1e3,
            },
            "processor": self.processor,
            "experts": self.entry() if self.fit.choice.bound is not None else None,
            "notes": self.notes,
        }

    def entry(self) -> str:
        """The entry of `experts`, as YAML."""
        word = "at_least" if self.samples.is_cascade else "below"
        return "\n".join(
            [
                "experts:",
                f"  - name: {self.name}",
                f"    feature: {self.feature}",
                f"    of: {self.of}",
                "    experts:",
                f"      - {{model: light, {word}: {self.fit.choice.bound!r}}}  # {self.light.name}",
                f"      - {{model: dense}}  # {self.dense.name}",
            ]
        )


def _as_json(judged: Judgement) -> dict[str, Any]:
    """Each interval as its figure, its low and its high end."""
    values = asdict(judged)
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def show(report: Report, as_json: bool) -> None:
    """Prints the report.

    Args:
        report: of the fit.
        as_json: as one object.
    """
    if as_json:
        import orjson

        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(lines(report)))


def lines(report: Report) -> list[str]:
    """The report as text.

    Args:
        report: of the fit.
    """
    samples, fit = report.samples, report.fit
    text = [f"note: {note}" for note in report.notes[:_NOTES_SHOWN]]
    if len(report.notes) > _NOTES_SHOWN:
        text.append(f"note: and {len(report.notes) - _NOTES_SHOWN} more")
    text += [
        f"{report.light.name} takes {samples.light_s * 1e3:.3f} ms, {report.dense.name} "
        f"{samples.dense_s * 1e3:.3f} ms on one thread of {report.processor}; the feature "
        f"{samples.rule_s * 1e6:.0f} µs",
        "",
        *_curve(report),
        "",
    ]
    rows, groups = fit.fitted.rows, fit.fitted.groups
    fitted = f"{rows} rows of {groups} {report.what}"
    if fit.choice.allowed < 0:
        text.append(
            f"No threshold: {fitted} are too few to be sure of {report.agreement:g} at 95 %."
        )
    elif fit.choice.bound is None:
        text.append(
            f"No threshold: of {fitted} at most {fit.choice.allowed} may be answered otherwise for "
            f"{report.agreement:g} at 95 %, and already the first ones of the light model are more."
        )
    else:
        text += [
            f"Fitted on {fitted}: {fit.choice.wrong} answered otherwise, {fit.choice.allowed} "
            f"allowed for {report.agreement:g} at 95 %.",
            *_judged(fit.held_out, report.what),
            "",
            report.entry(),
        ]
    return text


def _judged(held: Judgement, what: str) -> list[str]:
    return [
        f"Held out, {held.rows} rows of {held.groups} {what} (95 % intervals over {what}):",
        f"  answers as the dense model's  {_percent(held.agreement)}",
        f"  answered by the light one     {_percent(held.light)}",
        f"  time of the Runs saved        {_percent(held.saved)}",
    ]


def _percent(value: Interval) -> str:
    return f"{value.figure * 100:6.2f} %  ({value.low * 100:.2f} to {value.high * 100:.2f})"


def _shown(curve: tuple[Point, ...]) -> list[Point]:
    """Some points of the curve, about as far apart in the light model's share."""
    shown: list[Point] = []
    for step in range(_CURVE_ROWS + 1):
        wanted = step / _CURVE_ROWS
        point = next((each for each in curve if each.light >= wanted), None)
        if point is not None and (not shown or point is not shown[-1]):
            shown.append(point)
    return shown


def _curve(report: Report) -> list[str]:
    """The curve as a table with bars, on all rows."""
    shown = _shown(report.fit.curve)
    worst = min((point.agreement for point in shown), default=1.0)
    text = [f"{report.feature:>12}  light  saved  agreement  from {worst:.4f} to 1"]
    for point in shown:
        part = (point.agreement - worst) / (1 - worst) if worst < 1 else 1.0
        text.append(
            f"{point.bound:12.5g}  {point.light:4.0%}  {point.saved:5.0%}  {point.agreement:9.4f}  "
            f"{'#' * round(part * _BAR)}".rstrip()
        )
    return text


def check_plot(path: Path) -> None:
    """Finds out before the work whether the plot can be drawn.

    Args:
        path: of the picture.

    Raises:
        ConfigError: matplotlib is missing, or there is no such folder.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError(
            "--plot: expected matplotlib, found none: pip install 'lumen-uring[plot]'."
        ) from None
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--plot: expected a name ending in .png, .svg or .pdf, found {path}.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--plot {path}: expected a folder {path.absolute().parent}, found none.")


def plot(report: Report, path: Path) -> None:
    """Draws agreement and time saved over the light model's share.

    Args:
        report: of the fit.
        path: of the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    curve = report.fit.curve
    share = [point.light * 100 for point in curve]
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    axes.plot(share, [point.agreement * 100 for point in curve], label="answers as the dense model")
    axes.axhline(report.agreement * 100, color="grey", linestyle=":", label="wanted")
    axes.set_xlabel(f"rows that the light model answers, %, by {report.feature} of {report.of}")
    axes.set_ylabel("answers as the dense model's, %")
    saved = axes.twinx()
    saved.plot(share, [point.saved * 100 for point in curve], color="C2", label="time saved")
    saved.set_ylabel("time of the Runs saved, %")
    held = report.fit.held_out
    if report.fit.choice.bound is not None:
        figure_, low, high = (
            100 * each for each in (held.agreement.figure, held.agreement.low, held.agreement.high)
        )
        axes.errorbar(
            [held.light.figure * 100],
            [figure_],
            yerr=[[figure_ - low], [high - figure_]],
            fmt="o",
            color="C3",
            capsize=4,
            label=f"chosen, on held-out {report.what}",
        )
    figure.legend(loc="outside upper center", fontsize=8, ncols=4)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
