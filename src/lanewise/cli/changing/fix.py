"""`lanewise fix`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lanewise.cli.common import check_output, console, emit, json_option, output_option, price_option, project_settings
from lanewise.cli.outputs import deliver, written
from lanewise.cli.recording.run import RunCommand
from lanewise.errors import InputError, LanewiseError, UsageError

if TYPE_CHECKING:
    from lanewise.edit.edit import Suggestion
    from lanewise.edit.prove import Proof
    from lanewise.edit.rewrite import Rewritten
    from lanewise.edit.source_text import Source

__all__ = ["fix"]


_RUNS, _MOST_RUNS = 4, 8


class _Fix(RunCommand):
    """Leaves everything after the script's name to the program; a plan is none, and takes no words."""

    ends = ("--", "-")

    def split(self, args: list[str]) -> tuple[list[str], list[str]]:
        own, program = super().split(args)
        plan, options = program[:1], program[1:]
        if plan and plan[0].endswith(".json") and options and options[0].startswith("-"):
            return super().split([*own, *options, *plan])
        return own, program


class _Target(NamedTuple):
    """A file, what is suggested for it, how many suggestions are hidden as unsafe, how to make some of them, what each
    finding that they answer would give, us per step, and the price of an hour, dollars."""

    path: Path
    source: Source
    rewritten: Rewritten
    hidden: int
    make: Callable[[Sequence[tuple[str, int]]], Rewritten]
    gains: Mapping[str, float] = {}
    price: float = 0.0

    @property
    def edited(self) -> Source:
        """The file with its edits."""
        return self.source._replace(text=self.rewritten.after)


@click.command(cls=_Fix, options_metavar="[OPTIONS] SCRIPT [ARGS]... | FOLDER | PLAN.json")
@click.option(
    "--diff", "only_diff", is_flag=True, help="Print the suggestions as a diff and change nothing (the default)."
)
@click.option("--check", is_flag=True, help="Print no diff, and exit with 1 if there is anything to suggest.")
@click.option("--prove", is_flag=True, help="Record the program with and without them, alternately, and compare.")
@click.option(
    "--apply",
    "write",
    is_flag=True,
    help="Prove them, and write them to the script unless it fails, prints something else or gets slower.",
)
@click.option(
    "--test",
    metavar="COMMAND",
    help="What judges them instead of recordings, such as 'pytest -q': it runs without and with the edits in the files.",
)
@click.option("--no-proof", is_flag=True, help="With --apply: write them without running anything.")
@click.option("--unsafe", is_flag=True, help="Also what may change results by more than rounding; read the diff first.")
@click.option("--only", multiple=True, metavar="NAME[:LINE],...", help="Only these edits, or the one at that line.")
@click.option("--skip", multiple=True, metavar="NAME[:LINE],...", help="Not these edits, or not the one at that line.")
@click.option("--pick", is_flag=True, help="Show each change by itself and ask whether to make it.")
@click.option(
    "--trace", "trace", metavar="TRACE", help="A recording of the program: only edits that answer its findings."
)
@price_option
@click.option(
    "--runs",
    type=click.IntRange(1),
    help=f"Recordings per side.  [default: {_RUNS}, and up to {_MOST_RUNS} if these cannot tell which is faster]",
)
@json_option
@output_option
@click.pass_context
def fix(ctx: click.Context, **given: Any) -> None:
    """Suggest changes of a program's source, prove that they help, and apply them.

    Suggestions are printed as a diff. With --apply the program is recorded with and without them, alternately, and the
    script is only changed if it still runs, prints the same and does not get slower; otherwise the edits that are to
    blame are named. A comment `# lanewise: ignore[NAME]` on a line prevents an edit there. For a PLAN.json of
    lanewise.optimize: show it. With -o all of it becomes a page, one file to send; with --json that file.
    """
    script, arguments = _checked(ctx.meta["program"], given)
    given["price"] = project_settings(price=given["price"]).price
    for name in ("only", "skip"):
        given[name] = [one.strip() for value in given[name] for one in value.split(",")]
    if given["output"] is not None:
        check_output(given["output"], given["force"])
    if script.suffix == ".json" and not script.is_dir():
        if arguments:
            raise UsageError(f"{script} is a plan, which takes no arguments: {' '.join(arguments)}")
        _show_plan(script, given)
        return
    targets = [_picked(one) for one in _targets(script, given)] if given["pick"] else _targets(script, given)
    changed = [one for one in targets if one.rewritten.changed]
    judged = given["test"] is not None or given["prove"] or (given["write"] and not given["no_proof"])
    proof, holds = None, True
    if not given["as_json"]:
        _print_suggestions(targets, given, as_patch=not judged and not given["write"])
        if not judged and not given["write"] and not given["check"]:
            _say_what_next(ctx, bool(changed), arguments)
    if changed and given["test"] is not None:
        holds = _tested(changed, given["test"])
    elif changed and judged:
        proof = _proof(changed[0], arguments, given)
        holds = _may_write(proof, changed[0], arguments)
    edited = bool(changed) and given["write"] and holds
    if edited:
        _write(changed)
    if _form(given) != "text":
        _write_out(targets, proof, edited, given)
    for one in changed if given["write"] and not given["as_json"] else ():
        _tell(f"{'wrote' if edited else 'left'} {one.path}")
    if changed and (given["check"] or (given["write"] and not edited) or not holds):
        sys.exit(1)


def _checked(program: list[str], given: dict[str, Any]) -> tuple[Path, list[str]]:
    """The script, or folder, and its arguments. Raises UsageError for what does not go together."""
    if not program:
        raise UsageError("what to fix? lanewise fix SCRIPT [ARGS]")
    if program[0] == "-":
        raise UsageError("a program is edited in its file, not from standard input: lanewise fix SCRIPT")
    for flag, name in (("only_diff", "--diff"), ("check", "--check")):
        if given[flag] and given["write"]:
            raise UsageError(f"{name} changes nothing, --apply writes: leave one of them out")
    if given["test"] is not None and (given["prove"] or given["no_proof"]):
        raise UsageError("--test is the proof: leave --prove and --no-proof out")
    script, arguments = Path(program[0]), program[1:]
    if script.is_dir():
        if arguments:
            raise UsageError(f"{script} is a folder, which takes no arguments: {' '.join(arguments)}")
        if given["prove"] or (given["write"] and not given["no_proof"] and given["test"] is None):
            raise UsageError(
                f"{script} is a folder, which cannot be recorded: say what judges the edits, with --test COMMAND"
            )
        if given["output"] is not None and not given["as_json"]:
            raise UsageError("a page shows one script: name it, or add --json")
    return script, arguments


def _tell(text: str) -> None:
    click.echo(f"lanewise: {text}", err=True)


# -- suggestions -----------------------------------------------------------------------------------------------------


def _targets(path: Path, given: dict[str, Any]) -> list[_Target]:
    """What is suggested, file by file. In a folder a file that is no Python is told, and left out."""
    from lanewise.edit.left_over import put_back_left
    from lanewise.edit.scripts import scripts_in, used_by_others
    from lanewise.edit.source_text import check_writable, read_source

    findings = _findings(given["trace"]) if given["trace"] else None
    paths, folder = scripts_in(path), path.is_dir()
    if not paths:
        raise InputError(f"{path} has no Python file in it")
    sources: list[tuple[Path, Source]] = []
    for one in paths:
        if put_back_left(one):
            _tell(f"a run that was killed had left its edits in {one}: what was there before is back")
        try:
            sources.append((one, read_source(one)))
            if given["write"]:
                check_writable(one)
        except InputError as error:
            if not folder:
                raise
            _tell(f"left out: {error}")
    used = used_by_others([(one, source.text) for one, source in sources]) if folder else set[Path]()
    targets: list[_Target] = []
    for one, source in sources:
        try:
            targets.append(_target(one, source, given, findings, alone=one not in used))
        except InputError as error:
            if not folder:
                raise
            _tell(f"left out: {error}")
    return targets


def _target(
    path: Path, source: Source, given: dict[str, Any], findings: dict[str, float] | None, *, alone: bool
) -> _Target:
    from lanewise.edit.rewrite import rewrite

    def make(chosen: Sequence[tuple[str, int]] | None, *, safe: bool = not given["unsafe"]) -> Rewritten:
        return rewrite(
            source.text, only=given["only"], skip=given["skip"], safe_only=safe, findings=findings, alone=alone,
            chosen=None if chosen is None else lambda one: (one.name, one.line) in chosen,
        )  # fmt: skip

    try:
        every = make(None, safe=False)
        suggested = every if given["unsafe"] or all(one.safe for one in every.suggestions) else make(None)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    hidden = 0 if given["unsafe"] else sum(not one.safe for one in every.suggestions)
    return _Target(path, source, suggested, hidden, make, findings or {}, given["price"])


def _findings(trace: str) -> dict[str, float]:
    """What each finding of a recording gives by itself, or after others where that is more; us per step."""
    from lanewise.cli.common import open_trace, project_settings
    from lanewise.diagnose.explain import explain

    report = explain(open_trace(trace, cache=True), settings=project_settings())
    return {f.code: max(f.alone_us_per_step, f.recoverable_us_per_step) for f in report.findings}


def _by_gain(suggestions: Sequence[Suggestion], gains: Mapping[str, float]) -> list[tuple[Suggestion, float]]:
    """Suggestions with what is predicted of the best finding that each answers, us per step; those that give most first."""
    worth = [(one, max((gains.get(code, 0.0) for code in one.answers), default=0.0)) for one in suggestions]
    return sorted(worth, key=lambda pair: -pair[1])


def _picked(target: _Target) -> _Target:
    """The target with the changes that are wanted, one by one."""
    from lanewise.edit.rewrite import unified_diff

    chosen: list[tuple[str, int]] = []
    best_first = _by_gain(target.rewritten.suggestions, target.gains)
    for key in dict.fromkeys((one.name, one.line) for one, _ in best_first):
        alone = target.make([key])
        if not alone.changed:
            continue
        for one in alone.suggestions:
            click.echo(_line(target, one), err=True)
        click.echo(unified_diff(alone, _name_in_diff(target.path)), nl=False, err=True)
        if click.confirm("make this change?", default=False, err=True):
            chosen.append(key)
    return target._replace(rewritten=target.make(chosen))


def _line(target: _Target, one: Suggestion, gain: float = 0.0) -> str:
    from lanewise.report.gain import price_text
    from lanewise.report.quantity import format_quantity

    worth = [f"about {format_quantity('time', gain * 1e3)} of a step", price_text(gain, target.price)]
    about = f" (predicted: {', '.join(filter(None, worth))})" if gain else ""
    return f"{target.path}:{one.line}: {one.name}: {one.what}{'' if one.safe else ' (unsafe)'}{about}"


def _print_suggestions(targets: Sequence[_Target], given: dict[str, Any], *, as_patch: bool) -> None:
    """To the terminal; or, where nothing else follows, as a patch in the encoding of each file."""
    from lanewise.edit.rewrite import patch_of, unified_diff

    for target in targets:
        for one, gain in _by_gain(target.rewritten.suggestions, target.gains) if not given["pick"] else ():
            click.echo(_line(target, one, gain), err=True)
    if hidden := sum(one.hidden for one in targets):
        more, it = ("1 more edit", "it") if hidden == 1 else (f"{hidden} more edits", "them")
        _tell(f"{more} may change results by more than rounding: --unsafe shows {it}")
    if not any(one.rewritten.changed for one in targets):
        _tell("nothing to suggest")
    if given["check"] and not given["only_diff"]:
        return
    for target in targets:
        name = _name_in_diff(target.path)
        if as_patch and not sys.stdout.isatty():
            click.echo(patch_of(target.rewritten, name, target.source.encoding), nl=False)
        else:
            click.echo(unified_diff(target.rewritten, name), nl=False)


def _name_in_diff(script: Path) -> str:
    """The file's path from here, as `git apply` wants it; a link names what it leads to."""
    path, here = script.resolve(), Path.cwd().resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else script.name


def _say_what_next(ctx: click.Context, changed: bool, arguments: list[str]) -> None:
    """How to go on from a diff; and which words went to the program though lanewise knows them."""
    ours = {name for parameter in ctx.command.params for name in parameter.opts if name.startswith("-")}
    if taken := [word for word in arguments if word.split("=")[0] in ours]:
        _tell(f"{' '.join(taken)} went to the program, as all that follows its name; for lanewise, put it before")
    elif changed:
        _tell("nothing is written yet; --apply before the script's name proves these and writes them")


def _write(targets: Sequence[_Target]) -> None:
    from lanewise.edit.source_text import write_source

    for one in targets:
        write_source(one.path, *one.edited)


# -- proof -----------------------------------------------------------------------------------------------------------


def _proof(target: _Target, arguments: list[str], given: dict[str, Any]) -> Proof:
    from lanewise.edit.left_over import terminated_in_order
    from lanewise.edit.prove import EditedProgramError, prove

    with terminated_in_order(), tempfile.TemporaryDirectory(prefix="lanewise-") as folder:
        try:
            answers = {code for one in target.rewritten.suggestions for code in one.answers}
            runs, most = (_RUNS, _MOST_RUNS) if given["runs"] is None else (given["runs"], given["runs"])
            proof = prove(
                target.path, target.edited, arguments, Path(folder),
                runs=runs, most=most, tell=_tell, answers=answers,
            )  # fmt: skip
        except EditedProgramError:
            _blame_by_output(target, arguments, ())
            raise
    if not given["as_json"]:
        print_proof(proof, target.price)
    return proof


def print_proof(proof: Proof, price: float = 0.0) -> None:
    """The comparison, whether both printed the same, and what the edits save at the price of an hour in dollars."""
    from lanewise.report.gain import price_text
    from lanewise.show.diff.diff_terminal import print_diff

    print_diff(proof.comparison, console(), brief=True)
    _tell(proof.printed)
    if proof.unsure:
        _tell(proof.unsure)
    if proof.predicted_beside_measured:
        _tell(proof.predicted_beside_measured)
    if proof.verdict == "faster" and (saved := price_text(proof.saved_us, price)):
        _tell(f"the edits save {saved}")


def _may_write(proof: Proof, target: _Target, arguments: list[str]) -> bool:
    if proof.changes_output:
        _tell("the edits change what it prints: nothing is written")
        _blame_by_output(target, arguments, proof.before)
        return False
    if proof.verdict == "slower":
        _tell("it is slower with the edits: nothing is written")
        return False
    return True


def _tested(targets: Sequence[_Target], command: str) -> bool:
    """Whether the tests pass with the edits. Raises LanewiseError if they fail without them."""
    from lanewise.edit.tested import in_place, passes

    _tell(f"{command}, without the edits")
    right, said = passes(command)
    if not right:
        raise LanewiseError(f"{command} fails without the edits, too: {said}")

    def holds(some: Sequence[tuple[Path, str, int]]) -> bool:
        after = {
            one.path: one.source._replace(text=one.make([key[1:] for key in some if key[0] == one.path]).after)
            for one in targets
        }
        with in_place({one.path: one.source for one in targets}, after):
            return passes(command)[0]

    _tell(f"{command}, with them")
    with in_place({one.path: one.source for one in targets}, {one.path: one.edited for one in targets}):
        right, said = passes(command)
    _tell(f"it {'passes' if right else 'fails'} with the edits: {said}")
    if not right:
        _blame(targets, holds)
    return right


def _blame_by_output(target: _Target, arguments: list[str], before: Sequence[str]) -> None:
    """Say which edits change what is printed, or make the program fail."""
    from lanewise.edit.prove import prints_the_same

    if len(target.rewritten.suggestions) > 1:
        known = list(before)

        def holds(some: Sequence[tuple[Path, str, int]]) -> bool:
            edited = target.source._replace(text=target.make([key[1:] for key in some]).after)
            return prints_the_same(target.path, edited, arguments, known)

        _blame([target], holds)


def _blame(targets: Sequence[_Target], holds: Callable[[Sequence[tuple[Path, str, int]]], bool]) -> None:
    from lanewise.edit.blame import bad_ones

    every = dict.fromkeys((one.path, each.name, each.line) for one in targets for each in one.rewritten.suggestions)
    if len(every) > 1:
        _tell("looking for the edit that does it")
    bad = bad_ones(list(every), holds) if len(every) > 1 else list(every)
    for path, name, line in bad:
        _tell(f"{path}:{line}: {name} does it: --skip {name}:{line} leaves it out")


# -- as files --------------------------------------------------------------------------------------------------------


def _write_out(targets: Sequence[_Target], proof: Proof | None, edited: bool, given: dict[str, Any]) -> None:
    from lanewise.edit.rewrite import unified_diff
    from lanewise.show.plan.fix_page import Fixed

    files = [
        Fixed(
            one.path,
            one.rewritten.suggestions,
            unified_diff(one.rewritten, _name_in_diff(one.path)),
            proof,
            edited and one.rewritten.changed,
        )
        for one in targets
    ]
    emit(written("fix", _form(given), files), given["output"], given["force"])


def _form(given: dict[str, Any]) -> str:
    return "json" if given["as_json"] else "html" if given["output"] is not None else "text"


def _show_plan(path: Path, given: dict[str, Any]) -> None:
    try:
        from lanewise.fix.plans.saved_plan import read_report
        from lanewise.show.plan.plan_text import print_plan
    except ModuleNotFoundError as error:
        raise LanewiseError(f"this needs {error.name}: pip install {error.name}") from None
    report = read_report(path)
    printed = partial(print_plan, report, console(), verbose=True)
    deliver("plan", _form(given), (report,), given["output"], given["force"], printed=printed)
