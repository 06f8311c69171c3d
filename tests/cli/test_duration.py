"""Times on the command line, with and without a unit."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from lanewise.bundled import bundled_path
from lanewise.cli.duration import microseconds
from lanewise.cli.main import cli


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("850", 850),
        ("11.9ms", 11_900),
        ("1.2 s", 1_200_000),
        ("40µs", 40),
        ("40 US", 40),
        ("5e3", 5_000),
        ("7ns", 0.007),
    ],
)
def test_a_time_is_read(text: str, time: float) -> None:
    assert microseconds(text) == pytest.approx(time)


@pytest.mark.parametrize("text", ["0", "-3", "", "ms", "1.2.3ms", "5 min", "1e999", "nan"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time: write"):
        microseconds(text)


def test_explain_takes_a_unit() -> None:
    def explain(time: str) -> Result:
        return CliRunner().invoke(cli, ["explain", str(bundled_path("mnist")), "--step-time", time])

    assert "5.00 ms per step without the profiler, as measured" in explain("5ms").output
    assert explain("5ms").output == explain("5000").output
    refused = explain("fast")
    assert refused.exit_code == 2
    assert "Invalid value for '--step-time': 'fast' is not a time" in refused.output
