"""`lanewise tree`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lanewise.cli.common import (
    cache_option,
    console,
    emit,
    json_option,
    open_fleet,
    open_trace,
    output_option,
    samples_option,
)
from lanewise.cli.outputs import deliver, formats, written

if TYPE_CHECKING:
    from lanewise.tree.model import Tree
    from lanewise.tree.views import Placement
    from lanewise.tree.watching.start_up import StartUp

__all__ = ["tree"]

_BY = ("kernel", "operator", "module", "class", "line", "file", "function", "phase")
_PHASES = ("forward", "backward", "recompute", "optimizer", "data loading", "communication", "other")
_METRICS = (
    "device",
    "kernel",
    "copy",
    "set",
    "htod",
    "dtoh",
    "dtod",
    "host",
    "wait",
    "count",
    "launches",
    "calls",
    "bytes",
    "gap",
    "idle",
    "delay",
    "allocated",
    "allocations",
)
_FORMATS = ("json", "tree", "speedscope", "collapsed", "pprof", "otlp", "hatchet", "prometheus", "csv", "parquet")


@click.command()
@click.argument("sources", metavar="TRACE...", nargs=-1, required=True)
@click.option(
    "--view",
    type=click.Choice(["top-down", "bottom-up", "modules", "flat"]),
    default="top-down",
    show_default=True,
    help="From the program to its kernels, from the kernels to their callers, the network alone, or a table.",
)
@click.option("--by", type=click.Choice(_BY), default=None, help="One row per such thing; implies --view flat.")
@click.option(
    "--metric", type=click.Choice(_METRICS), default="device", show_default=True, help="What to show and sort by."
)
@click.option(
    "--placement",
    type=click.Choice(["forward", "ran"]),
    default="forward",
    show_default=True,
    help="Backward work under its forward operator, or where it ran.",
)
@click.option("--phase", "phases", type=click.Choice(_PHASES), multiple=True, help="Only this phase. Repeatable.")
@click.option(
    "--start-up",
    "start_up",
    type=click.Choice(["out", "apart", "in"]),
    default="out",
    show_default=True,
    help="What a watched program did until its first step had ended: left out, below its own root, or with the rest.",
)
@click.option("--match", "text", metavar="TEXT", default="", help="Only contexts named so, with all above and below.")
@click.option("--step", "steps", type=int, multiple=True, help="Only this recorded step. Repeatable.")
@click.option("--stream", "streams", multiple=True, help="Only device work of this stream. Repeatable.")
@click.option("--frames", is_flag=True, help="Show the frames of libraries too.")
@click.option("--merge-layers", is_flag=True, help="Equal layers as one: layers.0 and layers.1 become layers.*.")
@click.option("--baseline", metavar="TRACE", default=None, help="Show what changed since this trace or tree, per step.")
@click.option("--depth", metavar="N", type=click.IntRange(min=0), default=None, help="Show no deeper levels.")
@click.option(
    "--min-share",
    type=click.FloatRange(0, 100),
    default=1.0,
    show_default=True,
    help="Contexts below this percentage are summed up.",
)
@click.option("-n", "--limit", metavar="N", type=click.IntRange(min=1), default=60, show_default=True, help="Rows.")
@samples_option
@click.option(
    "--source",
    "roots",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="Show source lines from files below this directory. Repeatable.",
)
@click.option(
    "--to",
    "format_",
    type=click.Choice(_FORMATS),
    default=None,
    help="Write another format; `tree` keeps the whole tree for later.",
)
@click.option(
    "--on",
    "way",
    metavar="WHERE",
    default=None,
    help="What adds up very many trees: processes (this machine, the default), ray or dask; ray=ADDRESS and dask=ADDRESS "
    "for a cluster that runs already.",
)
@json_option
@cache_option
@output_option
def tree(
    sources: tuple[str, ...],
    view: str,
    by: str | None,
    metric: str,
    placement: Placement,
    phases: tuple[str, ...],
    start_up: StartUp,
    text: str,
    steps: tuple[int, ...],
    streams: tuple[str, ...],
    frames: bool,
    merge_layers: bool,
    baseline: str | None,
    depth: int | None,
    min_share: float,
    limit: int,
    samples: Path | None,
    roots: tuple[Path, ...],
    format_: str | None,
    way: str | None,
    as_json: bool,
    cache: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Device time, copies, launches and host time at their place in the program.

    Every kernel stands under the Python frames, modules and operators that launched it; backward work under the line
    whose forward pass caused it. TRACE may also be a tree of lanewise watch, or saved with --to tree, or a folder of such
    trees (and folders in it: processes, ranks, days); several are added up.
    """
    from lanewise.errors import UsageError
    from lanewise.tree import algebra, views
    from lanewise.tree.fleet import holds_trees
    from lanewise.tree.watching.start_up import start_up_of, with_start_up

    format_ = "json" if as_json else format_
    whole = _load(sources, steps, streams, cache, way)
    if samples is not None and baseline is not None:
        raise UsageError("--samples are of one run: leave out --baseline")
    whole, said = _sampled(whole, samples)
    if format_ != "tree" or baseline is not None:
        everything, whole = whole, with_start_up(whole, start_up)
    else:
        everything = whole
    if baseline is not None:
        before = with_start_up(
            _load((baseline,), steps, streams, cache, way if holds_trees(baseline) else None), start_up
        )
        whole = algebra.subtract(algebra.per_step(whole), algebra.per_step(before))
    if format_ == "tree":
        emit(written("tree", "tree", whole), output, force)
        return
    if metric == "device" and not whole.value("device").any():
        # A program without a device: what it costs is host time.
        metric = "host"
    shown = views.top_down(whole, placement=placement, fold=not frames, phases=phases, text=text)
    if merge_layers:
        shown = views.merge_layers(shown)
    if by is not None or view == "flat":
        _flat(shown, by or "operator", metric, limit, format_, output, force)
        return
    if view == "bottom-up":
        shown = views.bottom_up(shown, metric)
        # Callers are chains: without a bound one kernel's would fill the screen.
        depth = 5 if depth is None else depth
    elif view == "modules":
        shown = views.modules(shown)
    if format_ is not None:
        options = {"json": {"metric": metric, "view": view}, "collapsed": {"metric": metric}}.get(format_, {})
        emit(written("tree", format_, shown, **options), output, force)
    else:
        from lanewise.show.tree.tree_terminal import header, tree_rows, tree_text

        if output is not None:
            raise UsageError("-o writes data: add --to and a format")
        from lanewise.report.quantity import format_quantity

        rows = tree_rows(shown, metric, min_share=min_share / 100, limit=limit, depth=depth)
        screen = console()
        screen.print(header(whole if view == "top-down" and not phases and not text else shown))
        screen.print(*said, style="dim", end="\n" * len(said))
        if whole is not everything and start_up == "out" and baseline is None:
            early = int(everything.value("host")[start_up_of(everything)].sum())
            screen.print(
                f"start-up left out: {format_quantity('time', early)} of host time until the first step had ended"
                " (--start-up apart shows it)",
                style="dim",
            )
        screen.print(tree_text(shown, rows, metric, width=screen.width, roots=roots))


def _load(
    sources: tuple[str, ...], steps: tuple[int, ...], streams: tuple[str, ...], cache: bool, way: str | None
) -> Tree:
    from lanewise.errors import UsageError
    from lanewise.tree.algebra import merge
    from lanewise.tree.fleet import holds_trees

    saved = [source for source in sources if holds_trees(source)]
    traces = [source for source in sources if source not in saved]
    if saved and (steps or streams):
        raise UsageError(f"{saved[0]} is a saved tree: steps and streams can only be chosen from its trace")
    if way and not saved:
        raise UsageError("--on says what reads saved trees: there is none among the sources")
    trees = [open_fleet(saved, way)[0]] if saved else []
    for source in traces:
        from lanewise.tree.build import build_tree

        trees.append(build_tree(open_trace(source, cache=cache), steps=steps or None, streams=streams or None))
    return trees[0] if len(trees) == 1 else merge(trees)


def _sampled(tree: Tree, samples: Path | None) -> tuple[Tree, list[str]]:
    """The tree with what was sampled inside of its kernels, if anything was, and a sentence on how."""
    if samples is None:
        return tree, []
    from lanewise.machine_code.sampled.parts import parts_of
    from lanewise.machine_code.sampled.samples import read_samples
    from lanewise.machine_code.sampled.stalls import stalls_of
    from lanewise.tree.inside_kernels import share_of, with_insides

    insides = parts_of(stalls_of(read_samples(samples)))
    share = share_of(tree, insides)
    if not share:
        return tree, [f"none of the kernels in {samples.name} is in this tree"]
    said = (
        f"{share:.0%} of the device time is in kernels of {samples.name}; the parts of a kernel have the same shares "
    )
    return with_insides(tree, insides), [f"{said}wherever it was launched"]


def _flat(shown: Tree, by: str, metric: str, limit: int, format_: str | None, output: Path | None, force: bool) -> None:
    from lanewise.errors import UsageError
    from lanewise.tree.flat import flat

    table = flat(shown, by, metric=metric)
    if format_ is not None and format_ not in formats("flat tree"):
        raise UsageError("a flat view is printed, or written as --json, --to csv or --to parquet")

    def printed() -> None:
        from lanewise.show.report.terminal_table import table_renderable
        from lanewise.show.tree.tree_terminal import flat_block, header

        screen = console()
        screen.print(header(shown))
        screen.print(table_renderable(flat_block(shown, table, by, metric, limit=limit)))

    deliver("flat tree", format_ or "text", (shown, table, by), output, force, printed=printed)
