"""`lanewise predict`."""

from __future__ import annotations

from pathlib import Path

import click

from lanewise.cli.common import (
    cache_option,
    emit,
    json_option,
    open_trace,
    output_option,
    price_option,
    print_or_write,
    project_settings,
    step_time_option,
)

__all__ = ["predict"]


@click.command()
@click.argument("source", metavar="TRACE")
@click.option(
    "--apply", "changes", multiple=True, metavar="CHANGE", help="A change (repeatable): each alone, and all together."
)
@click.option("--all", "everything", is_flag=True, help="All that the report finds, the best first.")
@json_option
@step_time_option
@price_option
@cache_option
@output_option
def predict(
    source: str,
    changes: tuple[str, ...],
    everything: bool,
    as_json: bool,
    step_time: float | None,
    price: float | None,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Predict what a step would be with some changes made: alone, and together.

    \b
    --apply MEM106                    a finding of the report, as if fixed
    --apply kernel:gemm=2x            twice as fast (0.5x: half as fast)
    --apply module:Attention=2x       with its host's work and its backward
    --apply line:train.py:12=remove   left out; also function:NAME, operator:NAME
    --apply copies=overlap            in parallel with the rest; also communication, optimizer
    --apply waits=remove              no waiting for the device
    --apply host=2x                   all that the host does; also device, bandwidth
    --apply device=H200               the same kernels on another card
    --apply dtype=bf16                also fp16, tf32
    --apply batch=2x                  a larger batch
    --apply cuda-graph                all launches in graphs; also compile

    The step is replayed without the profiler's cost, and again with the changes (docs/predict.md says how, and how well).
    """
    from lanewise.diagnose.explain import facts_of
    from lanewise.diagnose.what_if.predict import predict_of
    from lanewise.errors import UsageError

    if everything and changes:
        raise UsageError("--all and --apply exclude each other: --all takes every finding of the report")
    if not everything and not changes:
        raise UsageError("what to apply? --all, or --apply with a finding's code; `lanewise predict -h` lists the rest")
    facts = facts_of(open_trace(source, cache=cache), unprofiled_us=step_time)
    prediction = predict_of(facts, None if everything else changes, project_settings(price=price))
    if as_json:
        from lanewise.show.report.json import prediction_json

        emit(prediction_json(prediction), output, force)
        return
    from lanewise.show.report.prediction_text import render_prediction

    print_or_write(lambda terminal: terminal.print(render_prediction(prediction)), output, force)
