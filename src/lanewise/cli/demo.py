"""`lanewise demo`."""

from __future__ import annotations

import importlib.util

import click

from lanewise.bundled import BUNDLED, bundled_path
from lanewise.cli.common import console, emit, json_option
from lanewise.cli.outputs import written

__all__ = ["demo"]


@click.command()
@click.argument("name", type=click.Choice(list(BUNDLED)), required=False)
@click.option("--list", "list_", is_flag=True, help="List the bundled traces.")
@json_option
def demo(name: str | None, list_: bool, as_json: bool) -> None:
    """Show it working: explain a bundled H100 trace, and record a small CPU program first if torch is installed."""
    if list_:
        for key, text in BUNDLED.items():
            click.echo(f"{key:14} {text}")
        return
    records = name is None and not as_json and importlib.util.find_spec("torch") is not None
    if records:  # said before anything is imported that takes a while
        click.echo("Recording a small program on this machine's CPU, into lanewise-out/ ...", err=True)
    from lanewise.diagnose.explain import explain
    from lanewise.show.report.one_screen import print_one_screen
    from lanewise.trace.reader import read

    if as_json:
        report = explain(read(str(bundled_path(name or "mnist")), cache=False))
        emit(written("report", "json", report), None, False)
        return
    if records:
        from lanewise.capture.demo import record_demo

        print_one_screen(record_demo(), console())
        click.echo()
    elif name is None:
        click.echo("torch is not installed, so nothing can be recorded here; a bundled H100 trace instead.\n", err=True)
    name = name or "mnist"
    click.echo(f"A bundled trace from an H100: {BUNDLED[name]}.\n", err=True)
    print_one_screen(explain(read(str(bundled_path(name)), cache=False)), console())
    click.echo("\nyour own:  lanewise explain trace.json.gz        more of these:  lanewise demo --list", err=True)
