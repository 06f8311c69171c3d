"""`lanewise`: the command. Verbs are loaded when they are called, so that `--help` is fast."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lanewise._version import __version__
from lanewise.cli.plain import as_shown
from lanewise.cli.suggest import nearest
from lanewise.errors import LanewiseError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["OTHER_WORDS", "VERBS", "cli", "main"]

# verb -> its one line of help. Its command is the attribute of its name in the module of its name.
VERBS: dict[str, str] = {
    "run": "Run a program unchanged, record it soundly, and explain it.",
    "sweep": "Record a program at several batch sizes: where its regime changes, and was predicted to.",
    "watch": "Run a program and collect its calling-context tree, light enough to leave on.",
    "explain": "Say what a trace is bound by, what each problem costs, and what to do.",
    "view": "Show a trace on an interactive page, or write it to one file to send.",
    "table": "The profiler's tables; roofline, memory, overlap, queues, critical path.",
    "predict": "Predict what a step would be with some changes made, alone and together.",
    "ranks": "Compare the ranks of one job: which one is late and why, and how they communicate.",
    "tree": "Calling-context tree: every GPU microsecond at its source line, module and phase.",
    "diff": "Say what changed between runs, what did not, and how sure that is.",
    "fix": "Suggest changes of a program's source, prove that they help, apply them.",
    "check": "Check budgets in CI: exit code 1 if a recording exceeds one.",
    "baseline": "Save what a program did, to compare later recordings with.",
    "chain": "One step's dispatch chain, from Python call to kernel.",
    "export": "Write a trace for Perfetto, speedscope, a page, Parquet or CSV.",
    "kernel": "Say what limits a kernel, from its machine code alone.",
    "sql": "Query the columns of a trace in SQL.",
    "rule": "Explain a diagnosis, or list them all.",
    "mcp": "Answer an assistant's questions about recordings (Model Context Protocol).",
    "doctor": "Say what this machine can record, and why not.",
    "demo": "Show it working: a bundled H100 trace explained.",
    "tour": "Learn it in twelve lessons, on your own recordings.",
}

# verb -> the room that its module is in; the others are beside this file.
_ROOMS: dict[str, str] = {
    **dict.fromkeys(("run", "sweep", "watch"), "recording."),
    **dict.fromkeys(("explain", "view", "table", "ranks", "tree", "chain", "export", "kernel", "sql"), "reading."),
    **dict.fromkeys(("diff", "check", "baseline"), "comparing."),
    **dict.fromkeys(("predict", "fix"), "changing."),
}


# What other tools call these, or what one would try first.
OTHER_WORDS: dict[str, str] = {
    "analyze": "explain",
    "compare": "diff",
    "flamegraph": "tree",
    "open": "view",
    "optimize": "fix",
    "profile": "run",
    "query": "sql",
    "record": "run",
    "report": "explain",
    "show": "view",
    "stats": "table",
    "summary": "explain",
    "timeline": "view",
    "tutorial": "tour",
}


class _File(click.types.StringParamType):
    """A text that is mostly a path: completed as one, and not checked."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


_FILE = _File()


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"lanewise.cli.{_ROOMS.get(cmd_name, '')}{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        for parameter in command.params:
            # Traces are files, and only files can be completed.
            if isinstance(parameter, click.Argument) and parameter.type is click.STRING and parameter.metavar:
                parameter.type = _FILE
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            word = args[0]
            if os.path.exists(word):
                raise click.UsageError(f"no command {word!r}; did you mean: lanewise explain {word}") from None
            if near := OTHER_WORDS.get(word) or nearest(word, VERBS):
                raise click.UsageError(f"no command {word!r}; did you mean: lanewise {near}") from None
            raise


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="lanewise")
def cli() -> None:
    """Why is this PyTorch program slow? Explains profiler traces and says what to do next.

    \b
    lanewise explain trace.json.gz     what the program is bound by, and what to fix first
    lanewise demo                      the same on a bundled trace
    lanewise tour                      learn it, in twelve questions
    """


def main() -> None:
    """Entry point: runs a verb; an error a user can cause is one line on stderr and an exit code."""
    as_shown()
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except LanewiseError as error:
        click.echo(f"lanewise: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("lanewise: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output is gone (a pager, head): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("LANEWISE_DEBUG"):
            raise
        # A bug of ours: one line is enough for a user, the traceback is a variable away for a report.
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        click.echo(
            f"lanewise: internal error ({reason}); set LANEWISE_DEBUG=1 for the traceback and report it", err=True
        )
        sys.exit(1)
