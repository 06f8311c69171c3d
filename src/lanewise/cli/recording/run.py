"""`lanewise run`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lanewise.cli.common import price_option
from lanewise.cli.plain import as_given
from lanewise.cli.recording.first_words import what_to_type
from lanewise.errors import MissingDependencyError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from lanewise.capture.recording import Options
    from lanewise.capture.schedule import Plan
    from lanewise.capture.script import Program

__all__ = ["RunCommand", "launcher", "need_torch", "program_here", "program_of", "run"]


class RunCommand(click.Command):
    """Leaves everything from the script's name, or from `-m` and `-c`, to the program.

    Attributes:
        ends: words that look like options and begin the program.
    """

    ends: tuple[str, ...] = ("-m", "-c", "--")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, ctx.meta["program"] = self.split(args)
        return super().parse_args(ctx, own)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Options, or the program's file."""
        from click.shell_completion import CompletionItem

        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def split(self, args: list[str]) -> tuple[list[str], list[str]]:
        """What is meant for lanewise, and the program with what is meant for it."""
        takes_value = {name for p in self.params if isinstance(p, click.Option) and not p.is_flag for name in p.opts}
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] not in (*self.ends, "-"):
            at += 2 if args[at] in takes_value else 1
        own, program = args[:at], args[at:]
        return own, program[1:] if program[:1] == ["--"] else program


@click.command(cls=RunCommand, options_metavar="[OPTIONS] [-m MODULE | -c CODE | SCRIPT] [ARGS]...")
@click.option("--stop", is_flag=True, help="End the program once recording is over.")
@click.option("--quick", is_flag=True, help="For programs with few steps: 3 timed, 3 recorded.")
@click.option("--whole", is_flag=True, help="Record from the first torch import on, steps or none.")
@click.option(
    "--step-on", metavar="FN", help="A step begins when this function of the script (or module:function) is called."
)
@click.option(
    "--stacks", is_flag=True, help="Record Python frames and modules: source lines, at the price of host time."
)
@click.option("--shapes/--no-shapes", default=True, show_default=True, help="Record operator shapes.")
@click.option("--memory", is_flag=True, help="Record allocator events.")
@click.option("--sync-events", is_flag=True, help="Record what streams and events wait for (CUDA).")
@click.option(
    "--graphs",
    is_flag=True,
    help="Note where in the program CUDA graphs are captured: `tree` places their replays there.",
)
@click.option("--all-threads", is_flag=True, help="Record operators of threads that the program starts by itself.")
@click.option(
    "--skip",
    metavar="N",
    type=click.IntRange(0),
    help="First steps to leave alone (they compile and fill caches).  [default: 3]",
)
@click.option("--warmup", metavar="N", type=click.IntRange(0), help="Steps for the profiler to warm up.  [default: 2]")
@click.option(
    "--active",
    metavar="N",
    type=click.IntRange(1),
    help="Steps to record.  [default: 10 to 40, until host times settle]",
)
@click.option(
    "--max-size", metavar="MB", type=click.FloatRange(1), help="Size of the trace before compression.  [default: 200]"
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("lanewise-out"),
    show_default=True,
    help="Folder for the trace and the report.",
)
@click.option("--name", metavar="NAME", help="First part of the files' names.  [default: the script's name]")
@click.option("--redact", is_flag=True, help="Leave the command line out of the trace.")
@click.option(
    "--sample",
    is_flag=True,
    help="Record no steps: sample what the warps of its CUDA kernels wait for, and say it per source line.",
)
@click.option(
    "--scopes",
    metavar="KERNEL",
    help="Record no steps: time the scopes (`pl.scope`) of a Triton kernel, by warp, with Triton's Proton.",
)
@price_option
@click.option("--explain/--no-explain", default=True, show_default=True, help="Print the report when the program ends.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report's data on stdout, after the program's own output."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing of our own but the report.")
@click.pass_context
def run(ctx: click.Context, **given: Any) -> None:
    """Run a program unchanged, record a few of its steps soundly, and explain them.

    Un-profiled steps are timed first, so that the report can say what recording cost. The program's arguments, output
    and exit code are its own; the report goes to standard error. Jobs of several processes: torchrun --no-python
    lanewise run train.py, accelerate launch -m lanewise run train.py, or lanewise run torchrun ...; each rank writes
    its own file.
    """
    _record(program_here(ctx.meta["program"], "run"), given)


def program_here(words: list[str], verb: str) -> Program:
    """The program that a command line names, to be run in this process.

    Does not return for a launcher: this process becomes it, and each of its ranks runs under `verb`. UsageError if no
    program is named, MissingDependencyError without torch.
    """
    program = program_of(words, verb)
    need_torch()
    if (launched := launcher(program, words, verb)) is not None:
        os.execv(sys.executable, [sys.executable, *launched])
    as_given()
    return program


def program_of(words: list[str], verb: str = "run") -> Program:
    """The program that a command line names. UsageError if it names none."""
    from lanewise.capture.script import Program

    if not words:
        raise UsageError(f"what to run? lanewise {verb} SCRIPT [ARGS], or -m MODULE, or -c CODE")
    first, rest = words[0], words[1:]
    if first in ("-m", "-c"):
        if not rest:
            raise UsageError(f"{first} needs a {'module' if first == '-m' else 'program'}")
        given = {"module": rest[0]} if first == "-m" else {"code": rest[0]}
        return Program(**given, arguments=tuple(rest[1:]))
    if os.path.basename(first) == "torchrun" and not os.path.exists("torchrun"):
        return Program(module="torch.distributed.run", arguments=tuple(rest))
    if first != "-" and (instead := what_to_type(words, verb)):
        raise UsageError(instead)
    return Program(script=first, arguments=tuple(rest))


def launcher(program: Program, words: list[str], verb: str) -> list[str] | None:
    """For torchrun: the launcher's command line with every rank under a `lanewise run` or `watch` of its own."""
    if program.module not in ("torch.distributed.run", "torch.distributed.launch"):
        return None
    from lanewise.capture.lazy_torch import torch_part

    parsed = torch_part("torch.distributed.run").get_args_parser().parse_args(list(program.arguments))
    tail = [parsed.training_script, *parsed.training_script_args]
    head = list(program.arguments)[: len(program.arguments) - len(tail)]
    if parsed.no_python:
        raise UsageError(
            f"lanewise {verb} torchrun --no-python ...: the other way round, torchrun --no-python lanewise {verb} ..."
        )
    head = [word for word in head if word not in ("-m", "--module")]
    ours = sys.argv[sys.argv.index(verb) : len(sys.argv) - len(words)]
    module = ["-m"] if parsed.module else []
    return ["-m", program.module, *head, "-m", "lanewise", *ours, *module, *tail]


def need_torch() -> None:
    """MissingDependencyError without torch."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("recording needs torch, which is not installed here: pip install torch")


def _plan(given: dict[str, Any]) -> Plan:
    from lanewise.capture.recorder import quick_plan
    from lanewise.capture.schedule import Plan

    plan = quick_plan() if given["quick"] else Plan()
    changes: dict[str, Any] = {name: given[name] for name in ("skip", "warmup") if given[name] is not None}
    if given["active"] is not None:
        changes |= {"active_min": given["active"], "active_max": given["active"]}
    if given["max_size"] is not None:
        changes["trace_bytes"] = int(given["max_size"] * 1e6)
    return replace(plan, **changes)


def _options(program: Program, given: dict[str, Any]) -> Options:
    from lanewise.capture.outlook import look
    from lanewise.capture.profiling.profiler import Flags
    from lanewise.capture.recording import Options

    if given["whole"] and given["step_on"]:
        raise UsageError("--whole records without steps, --step-on says where they begin: choose one")
    plan, whole, step_on = _plan(given), given["whole"], given["step_on"]
    if program.script and not whole and step_on is None:
        outlook = look(_source(program.script))
        if outlook.plain:
            # Neither optimizer nor module will ever tell: a function that a loop calls may, else all is recorded.
            step_on, whole = outlook.step or None, outlook.whole
            plan = plan if given["quick"] else outlook.fitted(plan)
    return Options(
        plan=plan,
        flags=Flags(
            shapes=given["shapes"],
            stacks=given["stacks"],
            memory=given["memory"],
            sync_events=given["sync_events"],
            all_threads=given["all_threads"],
        ),
        out=given["out"],
        name=given["name"] or program.name,
        whole=whole,
        step_on=step_on,
        stop=given["stop"],
        graphs=given["graphs"],
        redact=given["redact"],
        command=("python", *program.words),
    )


_OF_STEPS = (
    *("stop", "quick", "whole", "step_on", "stacks", "memory", "sync_events", "all_threads"),
    *("graphs", "skip", "warmup", "active", "max_size", "as_json"),
)


def _option(name: str) -> str:
    return "--json" if name == "as_json" else f"--{name.replace('_', '-')}"


def _source(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace") if os.path.isfile(path) else ""
    except OSError:
        return ""


_INSIDE = {"sample": "lanewise.cli.recording.sampled_run", "scopes": "lanewise.cli.recording.scoped_run"}
"""Options that look into kernels instead of recording steps, and what does it in the program's process."""


def _look_inside(program: Program, given: dict[str, Any], option: str, module: str) -> NoReturn:
    from lanewise.capture.script import become

    needless = [name for name in (*_OF_STEPS, *_INSIDE) if given[name] and name != option]
    if needless:
        raise UsageError(f"{_option(option)} records no steps: leave out {', '.join(map(_option, needless))}")
    told = {"out": str(given["out"]), "name": given["name"] or program.name, "explain": given["explain"]}
    become(program, module, told | {"kernel": given["scopes"]})


def _record(program: Program, given: dict[str, Any]) -> NoReturn:
    from lanewise.capture.script import become

    for option, module in _INSIDE.items():
        if given[option]:
            _look_inside(program, given, option, module)
    order = {
        "options": asdict(_options(program, given)) | {"out": str(given["out"])},
        "explain": given["explain"],
        "as_json": given["as_json"],
        "price": given["price"],
        "quiet": given["quiet"],
    }
    become(program, "lanewise.cli.recording.after_run", order)
