"""What a model's settings exclude: config.load and the library refuse by one table."""

from __future__ import annotations

import pytest

from lumen_uring.config import load
from lumen_uring.errors import ConfigError
from lumen_uring.ring import rules

# A setting that gives a model each kind, in the order of LUMEN_BESIDE_*.
KINDS = (
    "sequences={state: {h: hn}}",
    "isolation=process",
    "providers=[openvino]",
    "text={tokenizer: x, pooling: cls}",
)
BAD = {
    "isolation": "process",
    "response_cache": "true",
    "engine": "native",
    "width": "2",
    "batch_size": "2",
    "max_rows": "2",
    "run": "inline",
}
ALL = [(r.kind, r.setting.decode()) for r in rules._rules()]


@pytest.mark.parametrize(("kind", "setting"), ALL)
def test_each_rule_is_reported_with_its_place(kind: int, setting: str) -> None:
    rule = next(r for r in rules._rules() if (r.kind, r.setting.decode()) == (kind, setting))
    with pytest.raises(ConfigError) as caught:
        load(overrides=[f"models.0.{KINDS[kind]}", f"models.0.{setting}={BAD[setting]}"])
    found = "True" if BAD[setting] == "true" else BAD[setting]
    assert (
        f"models.0.{setting}: expected {rule.expected.decode()} beside {rule.beside.decode()}, "
        f"found {found}: {rule.because.decode()}"
    ) in str(caught.value)


def test_the_defaults_break_none() -> None:
    config = load(overrides=[f"models.0.{KINDS[0]}"])
    assert ALL
    rules.check(config, lambda *said: pytest.fail(f"{said}"))
