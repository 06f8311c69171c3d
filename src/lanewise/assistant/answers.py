"""The questions and their answers, as Markdown in pages. Only files of this machine are read; nothing is run.

What an answer says comes from the Report; names in it come from the trace, and are escaped.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lanewise.assistant.pages import PAGE_BYTES, page_of
from lanewise.compare.diff import diff
from lanewise.diagnose.explain import facts_of
from lanewise.diagnose.report_cache import explained
from lanewise.diagnose.settings import load_settings
from lanewise.diagnose.what_if.predict import predict_of
from lanewise.errors import InputError, LanewiseError, UsageError
from lanewise.report.gain import gain_text, helps, saves_text, why_not
from lanewise.report.model import Finding, Report
from lanewise.show.diff.diff_markdown import whole_diff_markdown
from lanewise.show.page.source_lines import SourceLines
from lanewise.show.report.markdown import escape, finding_markdown, location_text
from lanewise.show.report.short_markdown import short_markdown
from lanewise.show.safe_text import clean
from lanewise.trace.file.source import resolve
from lanewise.trace.reader import read_recorded

__all__ = ["QUESTIONS", "Answers", "input_schema"]

_LONGEST_PATH = 2_000
_KEPT = 4
"""Reports in memory."""
_TRACE = "path of a profiler trace (.json or .json.gz) or of a folder of them (the newest counts)"
Trace = Annotated[str, Meta(description=_TRACE)]
Page = Annotated[int, Meta(ge=1, description="page of the answer, from 1")]
Code = Annotated[str, Meta(description="code of a finding, such as SYN101")]


class Explain(msgspec.Struct, forbid_unknown_fields=True):
    """What a PyTorch program is bound by, whether the recording can be trusted, and the first things to do, each with its
    gain per step, its place and the change. Begin here."""

    trace: Trace
    page: Page = 1


class Findings(msgspec.Struct, forbid_unknown_fields=True):
    """All findings of a recording, a line each: code, gain per step or why there is none, what was seen."""

    trace: Trace
    page: Page = 1


class Evidence(msgspec.Struct, forbid_unknown_fields=True):
    """A finding in full: the numbers behind it, where it is, how to fix it, and how to verify the fix."""

    trace: Trace
    finding: Code
    page: Page = 1


class Source(msgspec.Struct, forbid_unknown_fields=True):
    """The program's lines around a finding, or around a place such as train.py:12 that an answer names. Only .py files
    below the folder that the server was started for."""

    trace: Trace
    finding: Code = ""
    place: Annotated[str, Meta(description="FILE:LINE instead of a finding")] = ""
    page: Page = 1


class Diff(msgspec.Struct, forbid_unknown_fields=True):
    """What changed between two recordings, what did not, and how sure that is."""

    before: Trace
    after: Trace
    anyway: Annotated[bool, Meta(description="compare even another card, type or size")] = False
    page: Page = 1


class Predict(msgspec.Struct, forbid_unknown_fields=True):
    """What a step would be with changes made, each alone and all together: a finding's code (as if fixed), kernel:gemm=2x,
    module:Attention=2x, line:train.py:12=remove, copies=overlap, waits=remove, host=2x, device=H200, dtype=bf16, batch=2x,
    cuda-graph, compile. Without changes: every finding fixed, the best first."""

    trace: Trace
    changes: Annotated[list[str], Meta(description="the changes, in words as above")] = []
    page: Page = 1


QUESTIONS: dict[str, type[msgspec.Struct]] = {
    one.__name__.lower(): one for one in (Explain, Findings, Evidence, Source, Diff, Predict)
}


def input_schema(question: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a question's arguments."""
    _, components = msgspec.json.schema_components([question])
    said_elsewhere = ("title", "description")
    return {key: value for key, value in components[question.__name__].items() if key not in said_elsewhere}


class Answers:
    """Answers questions about recordings.

    Args:
        root: the project: relative paths begin there, its settings count, and only below it sources are read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._settings = load_settings(start=self._root)
        self._reports: dict[tuple[str, int, int], Report] = {}
        self._ask: dict[type[msgspec.Struct], Callable[[Any], str]] = {
            Explain: self._explain,
            Findings: self._findings,
            Evidence: self._evidence,
            Source: self._source,
            Diff: self._diff,
            Predict: self._predict,
        }

    def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """The answer to a question, at most `PAGE_BYTES` long.

        Raises:
            LanewiseError: it cannot be answered; the reason is one line.
        """
        question = QUESTIONS.get(name)
        if question is None:
            raise UsageError(f"no tool {name[:80]!r}; there are {', '.join(QUESTIONS)}")
        try:
            asked: Any = msgspec.convert(arguments, question, strict=False)
            return page_of(self._ask[question](asked), asked.page)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name}: {error}") from None
        except LanewiseError as error:
            # It may name what the trace names.
            raise type(error)(clean(" ".join(str(error).split()), PAGE_BYTES // 4)) from None

    def _explain(self, asked: Explain) -> str:
        report = self._report(asked.trace)
        first = next((f'; then evidence with finding="{f.code}"' for f in report.findings if helps(f)), "")
        return f"{short_markdown(report, commands=False).rstrip()}\n\nAll of them: findings{first}.\n"

    def _findings(self, asked: Findings) -> str:
        report = self._report(asked.trace)
        lines = [f"# {escape(report.verdict, 600)}", ""]
        lines += [_line(finding) for finding in report.findings]
        needs = [check for check in report.checks if check.status == "needs_capture"]
        lines += [f"- {check.code} {check.name}: cannot be told, {escape(check.reason, 200)}" for check in needs]
        return "\n".join(lines) + "\n"

    def _evidence(self, asked: Evidence) -> str:
        found = self._found(self._report(asked.trace), asked.finding)
        return "\n".join(line for finding in found for line in finding_markdown(finding, blocks=None, rows=20))

    def _source(self, asked: Source) -> str:
        if asked.place:
            file, _, number = asked.place.rpartition(":")
            if not file or not number.isdecimal():
                raise UsageError(f"a place is FILE:LINE, such as train.py:12, and not {asked.place[:80]!r}")
            return self._lines(file, int(number[:9]))
        if not asked.finding:
            raise UsageError("around what? a finding's code, or a place such as train.py:12")
        finding = self._found(self._report(asked.trace), asked.finding)[0]
        at = finding.location
        if at is None or not at.file:
            where = location_text(finding) or "the whole step"
            raise UsageError(
                f"{finding.code} names no source line, only {where[:300]}: lanewise run --stacks records the lines"
            )
        return self._lines(at.file, at.line)

    def _diff(self, asked: Diff) -> str:
        sides = (self._path(asked.before), self._path(asked.after))
        return whole_diff_markdown(diff(*sides, anyway=asked.anyway, settings=self._settings))

    def _predict(self, asked: Predict) -> str:
        from rich.console import Console

        from lanewise.show.report.prediction_text import render_prediction

        facts = facts_of(read_recorded(self._path(asked.trace)))
        prediction = predict_of(facts, asked.changes or None, self._settings)
        console = Console(file=StringIO(), width=100, highlight=False, markup=False, emoji=False, no_color=True)
        with console.capture() as text:
            console.print(render_prediction(prediction))
        return "\n".join(line.rstrip() for line in text.get().splitlines()) + "\n"

    # -- what they share --------------------------------------------------------------------------------------------

    def _report(self, trace: str) -> Report:
        """The report on a trace. The last ones are kept: questions about one trace come in a row."""
        (source,) = resolve(self._path(trace))
        path = source.path or Path(source.name)
        status = path.stat()
        key = (str(path), status.st_mtime_ns, status.st_size)
        if key not in self._reports:
            report = explained(str(path), self._settings)
            self._reports = dict([*self._reports.items(), (key, report)][-_KEPT:])
        return self._reports[key]

    def _path(self, given: str) -> str:
        """A file or folder of this machine, by its path; nothing else that names a trace elsewhere."""
        if not given or given == "-" or "://" in given or "\0" in given or len(given) > _LONGEST_PATH:
            raise UsageError(f"a path of a file on this machine is needed, and not {given[:80]!r}")
        path = str(self._root / given)
        for source in resolve(path):
            if source.path is None:
                raise InputError(f"{given[:300]}: no regular file")
        return path

    def _found(self, report: Report, code: str) -> list[Finding]:
        found = [finding for finding in report.findings if finding.code == code.strip().upper()]
        if not found:
            there = ", ".join(dict.fromkeys(finding.code for finding in report.findings))
            raise UsageError(f"the report has no finding {code[:40]!r}; it has {there}")
        return found

    def _lines(self, file: str, line: int) -> str:
        """Lines of a file of the project; of a recording from another machine by what the file's path ends with."""
        parts = posixpath.normpath(file.replace("\\", "/")).strip("/").split("/")
        why = ""
        for at in range(len(parts)):
            name = "/".join(parts[at:])
            frame = f"{name}({line}): there"
            excerpts, omitted = SourceLines(self._root).excerpts([frame])
            if found := excerpts.get(frame):
                body = "\n".join(f"{n:6} {text}" for n, text in enumerate(found.lines, found.first))
                return f"{escape(name, 300)}, line {line} of the file as it is now:\n\n~~~~python\n{body}\n~~~~\n"
            why = next(iter(omitted), "") or why
        raise UsageError(f"{file[:300]}:{line} cannot be shown: {why or 'a file of a library'}")


def _line(finding: Finding) -> str:
    if finding.kind in {"validity", "regime"}:
        gain = "about the recording" if finding.kind == "validity" else "what binds it"
    else:
        saves = saves_text(finding)
        gain = f"{gain_text(finding)}{f'; {saves}' if saves else ''}" if helps(finding) else why_not(finding)
    where = location_text(finding)
    at = f" At {escape(where, 120)}." if where else ""
    return f"- {finding.code} {finding.name} ({gain}): {escape(finding.title, 400)}{at}"
