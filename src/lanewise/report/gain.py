"""What a step takes and what a finding would give, in words: the same on every output."""

from __future__ import annotations

from lanewise.report.model import Cost, Finding, RegimeSummary
from lanewise.report.priced import dollars
from lanewise.report.quantity import format_quantity

__all__ = ["cost_text", "dollars_text", "gain_text", "helps", "price_text", "saves_text", "step_text", "why_not"]


def helps(finding: Finding) -> bool:
    """Whether mending it would shorten the step by a measurable part."""
    return finding.kind == "problem" and finding.recoverable_us_per_step > 0


def gain_text(finding: Finding) -> str:
    """ "about 1.2 ms per step (0.9 to 1.4), leaving 3.1 ms"; "at most" where the change is a bound."""
    gain, low, high, leaves = (
        format_quantity("time", value * 1e3)
        for value in (
            finding.recoverable_us_per_step,
            finding.low_us_per_step,
            finding.high_us_per_step,
            finding.leaves_us_per_step,
        )
    )
    # Without marked steps the recording is one.
    per = " per step" if finding.steps or finding.per_step else ""
    if finding.bound:
        return f"at most {gain}{per}, leaving {leaves}"
    return f"about {gain}{per} ({low} to {high}), leaving {leaves}"


def why_not(finding: Finding) -> str:
    """Why a finding is not among those that help."""
    if finding.kind == "statement":
        return "worth knowing"
    if finding.kind == "note":
        return "less than 1 % of the step"
    if finding.alone_us_per_step > 0:
        alone = format_quantity("time", finding.alone_us_per_step * 1e3)
        return f"{alone} by itself, nothing more once those above are fixed"
    return "would not shorten the step now"


def step_text(regime: RegimeSummary, *, marked: bool = True, watched: bool = False, brief: bool = False) -> str:
    """ "about 2.2 ms per step without the profiler (1.8 to 2.7); 4.3 ms as recorded": measured where it was measured.

    Of a tree that was watched, without and with watching. `brief`: the step as recorded only where the real one is unknown.
    """
    step, low, high, recorded = (
        format_quantity("time", us * 1e3)
        for us in (regime.step_us, regime.step_low_us, regime.step_high_us, regime.recorded_step_us)
    )
    per = " per step" if marked else ""
    if watched and regime.step_us == regime.recorded_step_us:
        return f"{recorded}{per} as watched; what watching adds was not measured"
    if regime.name == "undetermined" and not regime.unprofiled:
        return f"{recorded}{per} as recorded"
    if watched:
        return f"about {step}{per} without watching ({low} to {high}); {recorded} as watched"
    if regime.unprofiled:
        return f"{step}{per} without the profiler, as measured" + ("" if brief else f"; {recorded} as recorded")
    return f"about {step}{per} without the profiler ({low} to {high}); {recorded} as recorded"


def cost_text(cost: Cost | None) -> str:
    """ "0.93 J per step (186 W), $1.94 per million steps ($2.50 per hour)"; "" where neither is known."""
    if cost is None:
        return ""
    parts: list[str] = []
    if cost.joules_per_step:
        parts.append(f"{_joules(cost.joules_per_step)} per step ({cost.watts:,.0f} W)")
    if cost.dollars_per_hour:
        price = dollars_text(cost.dollars_per_hour)
        parts.append(f"{dollars_text(cost.dollars_per_million_steps)} per million steps ({price} per hour)")
    return ", ".join(parts)


def saves_text(finding: Finding) -> str:
    """ "saves at most 0.4 J per step, $0.83 per million steps"; "" where neither is known."""
    parts: list[str] = []
    if finding.joules_per_step:
        parts.append(f"at most {_joules(finding.joules_per_step)} per step")
    if finding.dollars_per_million_steps:
        parts.append(f"{dollars_text(finding.dollars_per_million_steps)} per million steps")
    return f"saves {', '.join(parts)}" if parts else ""


def price_text(us: float, price: float) -> str:
    """ "$0.83 per million steps": so much time of each step at the price of an hour; "" where there is none."""
    return f"{dollars_text(worth)} per million steps" if (worth := dollars(us, price)) else ""


def _joules(value: float) -> str:
    if value >= 1e3:
        return f"{value / 1e3:.3g} kJ"
    return f"{value:.3g} J" if value >= 0.1 else f"{value * 1e3:.2g} mJ"


def dollars_text(value: float) -> str:
    """ "$1.94"; two digits of what is less than ten cents. A saving below 0 is a cost."""
    sign, value = "-" if value < 0 else "", abs(value)
    return f"{sign}${value:,.2f}" if value >= 0.1 else f"{sign}${value:.2g}"
