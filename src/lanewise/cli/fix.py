"""`lanewise fix`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lanewise.cli.common import check_output, console, emit, json_option, output_option
from lanewise.cli.run import RunCommand
from lanewise.errors import InputError, LanewiseError, UsageError

if TYPE_CHECKING:
    from lanewise.fix.source.prove import Proof
    from lanewise.fix.source.rewrite import Rewritten
    from lanewise.fix.source.text import Source

__all__ = ["fix"]


class _Fix(RunCommand):
    """Leaves everything after the script's name to the program; a plan is none, and takes no words."""

    ends = ("--", "-")

    def split(self, args: list[str]) -> tuple[list[str], list[str]]:
        own, program = super().split(args)
        plan, options = program[:1], program[1:]
        if plan and plan[0].endswith(".json") and options and options[0].startswith("-"):
            return super().split([*own, *options, *plan])
        return own, program


@click.command(cls=_Fix, options_metavar="[OPTIONS] SCRIPT [ARGS]... | PLAN.json")
@click.option(
    "--diff", "only_diff", is_flag=True, help="Print the suggestions as a diff and change nothing (the default)."
)
@click.option("--prove", is_flag=True, help="Record the program with and without them, in turns, and compare.")
@click.option(
    "--apply",
    "write",
    is_flag=True,
    help="Prove them, and write them to the script unless it fails, prints something else or gets slower.",
)
@click.option("--no-proof", is_flag=True, help="With --apply: write them without recording anything.")
@click.option("--unsafe", is_flag=True, help="Also what may change results beyond rounding; read the diff first.")
@click.option("--only", multiple=True, metavar="NAME", help="Only these edits.")
@click.option("--skip", multiple=True, metavar="NAME", help="Not these edits.")
@click.option(
    "--trace", "trace", metavar="TRACE", help="A recording of the program: only edits that answer its findings."
)
@click.option("--runs", default=4, show_default=True, type=click.IntRange(1), help="Recordings per side.")
@json_option
@output_option
@click.pass_context
def fix(ctx: click.Context, **given: Any) -> None:
    """Suggest changes of a program's source, prove that they help, and apply them.

    Suggestions are printed as a diff. With --apply the program is recorded with and without them, in turns, and the
    script is only changed if it still runs, prints the same and does not get slower. For a PLAN.json of
    lanewise.optimize: show it. With -o all of it becomes a page, one file to send; with --json that file.
    """
    from lanewise.fix.source.text import check_writable, read_source, write_source

    program: list[str] = ctx.meta["program"]
    if not program:
        raise UsageError("what to fix? lanewise fix SCRIPT [ARGS]")
    if program[0] == "-":
        raise UsageError("a program is edited in its file, not from standard input: lanewise fix SCRIPT")
    if given["only_diff"] and given["write"]:
        raise UsageError("--diff changes nothing, --apply writes: leave one of them out")
    script, arguments = Path(program[0]), program[1:]
    if given["output"] is not None:
        check_output(given["output"], given["force"])
    if script.suffix == ".json":
        if arguments:
            raise UsageError(f"{script} is a plan, which takes no arguments: {' '.join(arguments)}")
        _show_plan(script, given)
        return
    source = read_source(script)
    if given["write"]:
        check_writable(script)
    rewritten, hidden = _rewritten(script, source.text, given)
    edited = source._replace(text=rewritten.after)
    if not given["as_json"]:
        only_diff = not given["prove"] and not given["write"]
        _print_suggestions(rewritten, hidden, script, source.encoding if only_diff else "")
        if only_diff:
            _say_what_next(ctx, rewritten, arguments)
    proof = None
    if rewritten.changed and (given["prove"] or (given["write"] and not given["no_proof"])):
        proof = _proof(script, edited, arguments, given)
    written = False
    if given["write"] and rewritten.changed and _may_write(proof):
        write_source(script, *edited)
        written = True
    if given["as_json"]:
        emit(_json(rewritten, script, proof, written), given["output"], given["force"])
    elif given["output"] is not None:
        emit(_page(rewritten, script, proof, written), given["output"], given["force"])
    if not given["as_json"] and given["write"] and rewritten.changed:
        click.echo(f"lanewise: {'wrote' if written else 'left'} {script}", err=True)
    if given["write"] and rewritten.changed and not written:
        sys.exit(1)


def _rewritten(script: Path, source: str, given: dict[str, Any]) -> tuple[Rewritten, int]:
    """What is suggested, and how many suggestions were left out for not being safe."""
    from lanewise.fix.source.rewrite import rewrite

    findings = None
    if given["trace"]:
        from lanewise.cli.common import open_trace, project_settings
        from lanewise.diagnose.explain import explain

        settings = project_settings()
        report = explain(open_trace(given["trace"], cache=True), settings=settings)
        findings = [finding.code for finding in report.findings]
    try:
        every = rewrite(source, only=given["only"], skip=given["skip"], findings=findings)
        if given["unsafe"]:
            return every, 0
        safe = rewrite(source, only=given["only"], skip=given["skip"], safe_only=True, findings=findings)
        return safe, sum(not one.safe for one in every.suggestions)
    except InputError as error:
        raise InputError(f"{script}: {error}") from None


def _print_suggestions(rewritten: Rewritten, hidden: int, script: Path, encoding: str) -> None:
    """To the terminal; or, where nothing else follows, as a patch in the encoding of the file."""
    from lanewise.fix.source.rewrite import patch_of, unified_diff

    for one in rewritten.suggestions:
        click.echo(f"{script}:{one.line}: {one.name}: {one.what}{'' if one.safe else ' (unsafe)'}", err=True)
    if hidden:
        click.echo(f"lanewise: {hidden} more may change results beyond rounding: --unsafe shows them", err=True)
    if not rewritten.changed:
        click.echo("lanewise: nothing to suggest", err=True)
        return
    name = _name_in_diff(script)
    as_patch = bool(encoding) and not sys.stdout.isatty()
    click.echo(patch_of(rewritten, name, encoding) if as_patch else unified_diff(rewritten, name), nl=False)


def _name_in_diff(script: Path) -> str:
    """The file's path from here, as `git apply` wants it; a link names what it leads to."""
    path, here = script.resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else script.name


def _say_what_next(ctx: click.Context, rewritten: Rewritten, arguments: list[str]) -> None:
    """How to go on from a diff; and which words went to the program though lanewise knows them."""
    ours = {name for parameter in ctx.command.params for name in parameter.opts if name.startswith("-")}
    if taken := [word for word in arguments if word.split("=")[0] in ours]:
        click.echo(
            f"lanewise: {' '.join(taken)} went to the program, as all that follows its name; for lanewise, put it before",
            err=True,
        )
    elif rewritten.changed:
        click.echo(
            "lanewise: nothing is written yet; --apply before the script's name proves these and writes them", err=True
        )


def _proof(script: Path, edited: Source, arguments: list[str], given: dict[str, Any]) -> Proof:
    from lanewise.fix.source.prove import prove

    def tell(text: str) -> None:
        click.echo(f"lanewise: {text}", err=True)

    with tempfile.TemporaryDirectory(prefix="lanewise-") as folder:
        proof = prove(script, edited, arguments, Path(folder), runs=given["runs"], tell=tell)
    if not given["as_json"]:
        print_proof(proof)
    return proof


def print_proof(proof: Proof) -> None:
    """The comparison, and whether both printed the same."""
    from lanewise.show.diff_terminal import print_diff

    print_diff(proof.comparison, console())
    click.echo(f"lanewise: {proof.printed}", err=True)


def _may_write(proof: Proof | None) -> bool:
    if proof is None:
        return True
    if proof.changes_output:
        click.echo("lanewise: the edits change what it prints: nothing is written", err=True)
        return False
    if proof.verdict == "slower":
        click.echo("lanewise: it is slower with the edits: nothing is written", err=True)
        return False
    return True


def _json(rewritten: Rewritten, script: Path, proof: Proof | None, written: bool) -> str:
    import msgspec

    from lanewise.fix.source.rewrite import unified_diff
    from lanewise.show.json import to_plain

    data = {
        "schema": "lanewise.fix/1",
        "script": str(script),
        "suggestions": [one._asdict() for one in rewritten.suggestions],
        "diff": unified_diff(rewritten, _name_in_diff(script)),
        "comparison": None if proof is None else to_plain(proof.comparison),
        "same_output": None if proof is None else proof.same_output,
        "written": written,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def _page(rewritten: Rewritten, script: Path, proof: Proof | None, written: bool) -> str:
    from lanewise.fix.source.rewrite import unified_diff
    from lanewise.show.fix_page import fix_html

    diff = unified_diff(rewritten, _name_in_diff(script))
    return fix_html(script.name, rewritten.suggestions, diff, proof, written=written)


def _show_plan(path: Path, given: dict[str, Any]) -> None:
    try:
        from lanewise.fix.saved import read_report
        from lanewise.show.plan_text import plan_json, print_plan
    except ModuleNotFoundError as error:
        raise LanewiseError(f"this needs {error.name}: pip install {error.name}") from None
    report = read_report(path)
    if given["as_json"]:
        emit(plan_json(report), given["output"], given["force"])
    elif given["output"] is not None:
        from lanewise.show.plan_page import plan_html

        emit(plan_html(report), given["output"], given["force"])
    else:
        print_plan(report, console(), verbose=True)
