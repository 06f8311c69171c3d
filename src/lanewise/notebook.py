"""lanewise in a notebook: what is shown for its values, and `%%lanewise`, which records a cell.

%load_ext lanewise

%%lanewise
for batch in loader:
    train_step(batch)
"""

from __future__ import annotations

import ast
import html
import shlex
from pathlib import Path
from typing import Any

import click

from lanewise.capture.outlook import Outlook, look_at_cell
from lanewise.capture.profiling.profiler import Flags
from lanewise.capture.recorder import Recorder, quick_plan
from lanewise.capture.recording import Options
from lanewise.capture.schedule import Plan
from lanewise.compare.model import Comparison
from lanewise.diagnose.explain import facts_of, report_of
from lanewise.diagnose.settings import load_settings
from lanewise.errors import LanewiseError, MissingDependencyError
from lanewise.measure.facts import Facts
from lanewise.report.model import Report
from lanewise.report.prediction import Prediction
from lanewise.trace.model import Trace

__all__ = ["NotebookView", "load_ipython_extension"]

# A notebook keeps its outputs inside itself: large timelines belong into a file.
_MAX_SLICES = 150_000


class NotebookView:
    """What a notebook shows: the page for a trace, the first screen for a report, a prediction or a comparison.

    A trace, a report ... as the last line of a cell is shown by itself; this is for another height or more slices.

    Args:
        value: a `Trace`, `Facts`, `Report`, `Prediction` or `Comparison`.
        height: of the page's frame, pixels.
        max_slices: above this number the timeline leaves out the shortest slices, and says so.
    """

    def __init__(self, value: Any, *, height: int = 720, max_slices: int = _MAX_SLICES) -> None:
        self.value, self.height, self.max_slices = value, height, max_slices

    def __repr__(self) -> str:
        return f"NotebookView({self.value!r})"

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """What is shown, as one element of HTML."""
        # What goes wrong here is shown in the cell, in a line: nobody called this.
        try:
            return self._drawn()
        except LanewiseError as error:
            return f"<p>{html.escape(str(error))}</p>"

    def _drawn(self) -> str:
        from lanewise.show.diff.diff_terminal import render_diff
        from lanewise.show.report.one_screen import one_screen
        from lanewise.show.report.prediction_text import render_prediction
        from lanewise.show.report.text_html import text_html

        match self.value:
            case Trace():
                return self._page(facts_of(self.value))
            case Facts():
                return self._page(self.value)
            case Report():
                return text_html(one_screen(self.value))
            case Prediction():
                return text_html(render_prediction(self.value))
            case Comparison():
                return text_html(render_diff(self.value))
            case _:
                return f"<pre>{html.escape(repr(self.value)[:2000])}</pre>"

    def _page(self, facts: Facts) -> str:
        from lanewise.show.page.frame import frame
        from lanewise.show.page.html import report_html
        from lanewise.show.report.one_screen import one_screen
        from lanewise.show.report.text_html import text_html

        report = report_of(facts, load_settings())
        try:
            return frame(report_html(facts, report, max_slices=self.max_slices), self.height)
        except MissingDependencyError as error:
            return f"{text_html(one_screen(report))}<p>{html.escape(str(error))}</p>"


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext lanewise`: brings `%%lanewise`, which records a cell and shows the report on it."""

    def lanewise(line: str, cell: str) -> Any:
        """Records this cell and shows the report; `%%lanewise --help` lists the options."""
        return _magic(shell, line, cell)

    shell.register_magic_function(lanewise, "cell", "lanewise")


@click.command("%%lanewise", add_help_option=False)
@click.option("--quick", is_flag=True, help="For cells of few steps: 3 timed, 3 recorded.")
@click.option("--whole", is_flag=True, help="Record all of the cell, steps or none.")
@click.option("--step-on", metavar="FN", help="A step begins when this function of the notebook is called.")
@click.option(
    "--stacks", is_flag=True, help="Record Python frames and modules: source lines, at the price of host time."
)
@click.option("--memory", is_flag=True, help="Record allocator events.")
@click.option("--out", default="lanewise-out", show_default=True, help="Folder for the trace.")
@click.option("--name", default="cell", show_default=True, help="First part of the trace's name.")
@click.option("--page", is_flag=True, help="Show the page with the timeline instead of the first screen.")
@click.option("-h", "--help", is_flag=True, help="Show this text.")
def _options(**given: Any) -> dict[str, Any]:
    """Record this cell and show the report on it. The report is the cell's value: `_`, until the next one."""
    return given


def _magic(shell: Any, line: str, cell: str) -> Any:
    # One line in the notebook, not a traceback.
    from IPython.core.error import UsageError  # pyright: ignore[reportMissingImports]

    try:
        # Not standalone: the options come back, and errors are raised.
        given: dict[str, Any] = _options.main(shlex.split(line), prog_name="%%lanewise", standalone_mode=False)
        if given["help"]:
            click.echo(_options.get_help(click.Context(_options, info_name="%%lanewise")))
            return None
        source = shell.transform_cell(cell)
        recorder = _recorder(given, look_at_cell(source, shell.user_ns))
        recorder.start()
    except click.ClickException as error:
        raise UsageError(f"%%lanewise: {error.format_message()}") from None
    except (LanewiseError, ValueError) as error:
        raise UsageError(f"%%lanewise: {error}") from None
    ended = "exception"
    try:
        _run(shell, source, cell)
        ended = "program ended"
    except KeyboardInterrupt:
        ended = "interrupt"
        raise
    finally:
        recorder.stop(ended)
    if recorder.path is None:
        told = recorder.problem.replace("record(quick=True)", "--quick").replace("record(whole=True)", "--whole")
        raise UsageError(f"%%lanewise: {told}")
    report = recorder.explain(settings=load_settings())
    return NotebookView(recorder.trace) if given["page"] else report


def _recorder(given: dict[str, Any], outlook: Outlook) -> Recorder:
    """As `lanewise run` records a script with such an outlook, where the options do not say otherwise."""
    chosen = given["whole"] or given["step_on"] is not None
    return Recorder(
        Options(
            plan=quick_plan() if given["quick"] else Plan() if chosen else outlook.fitted(Plan()),
            flags=Flags(shapes=True, stacks=given["stacks"], memory=given["memory"]),
            out=Path(given["out"]),
            name=given["name"],
            whole=given["whole"] if chosen or given["quick"] else outlook.whole,
            step_on=given["step_on"] if chosen else outlook.step or None,
        )
    )


def _run(shell: Any, source: str, cell: str) -> None:
    """The cell's code in the notebook's namespace: its last expression is displayed, its errors are its own."""
    # By a name that tracebacks, and lines of the report, find the text by.
    name = shell.compile.cache(source, shell.execution_count, raw_code=cell)
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), shell.user_ns)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), shell.user_ns)
        if value is not None:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            display(value)
