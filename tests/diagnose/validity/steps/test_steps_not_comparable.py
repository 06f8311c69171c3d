from __future__ import annotations

from lanewise.report.model import TextBlock
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def run(*lengths: float, extra_operators: dict[int, int] | None = None) -> TraceBuilder:
    """Steps of the given lengths with 20 operators, and more in some of them."""
    b = TraceBuilder()
    for step, length in enumerate(lengths):
        with b.step(head=0, tail=0):
            for _ in range(19 + (extra_operators or {}).get(step, 0)):
                with b.op("aten::t", head=0, tail=0):
                    pass
            with b.op("aten::mm", head=length - 5, tail=0):
                b.launch(call=5, delay=5, duration=5)
    return b


def test_steps_that_scatter() -> None:
    result = found("MEA110", run(900, 200, 300, 250).build())
    assert "200.0 us to 300.0 us, a spread of 0.4x the median" in title("MEA110", result)
    assert result.gain_ns == 0


def test_the_threshold_is_a_spread_of_three_tenths() -> None:
    cleared("MEA110", run(900, 100, 115, 130, 115).build(), spread_from=0.2609)
    found("MEA110", run(900, 100, 115, 130, 115).build(), spread_from=0.2608)
    cleared("MEA110", run(900, 100, 100, 130, 100).build())


def test_one_outlier_in_many_steps_is_normal() -> None:
    cleared("MEA110", run(100, *[100] * 20, 500).build())


def test_two_steps_are_too_few() -> None:
    assert title("MEA110", found("MEA110", run(100, 100).build())).startswith("Only 2 steps were recorded")
    cleared("MEA110", run(100, 100, 100).build())


def test_steps_that_run_different_operators() -> None:
    trace = run(100, 100, 100, 100, extra_operators={2: 2}).build()
    result = found("MEA110", trace)
    assert list(result.steps) == [2]
    assert "1 of the steady steps run different operators" in title("MEA110", result)


def test_the_threshold_is_one_operator_in_twenty() -> None:
    cleared("MEA110", run(100, 100, 100, 100, extra_operators={2: 1}).build())
    base = dict.fromkeys(range(4), 20)
    cleared("MEA110", run(100, 100, 100, 100, extra_operators={**base, 2: 22}).build())  # 2 of 42
    found("MEA110", run(100, 100, 100, 100, extra_operators={**base, 2: 23}).build())  # 3 of 43


def test_it_says_when_the_run_settled() -> None:
    result = found("MEA110", run(3000, 130, 120, 110, *[60] * 8).build(), spread_from=0.1)
    settled = next(block for block in result.evidence if isinstance(block, TextBlock))
    text = settled.template.format_map({k: str(v) for k, v in settled.values.items()})
    assert text == "Host times settle only after 4 recorded steps: 60.0 us from step #6 on, 130.0 us in the second."


def test_no_steps() -> None:
    b = TraceBuilder()
    with b.op("aten::mm"):
        b.launch()
    skipped("MEA110", b.build())
