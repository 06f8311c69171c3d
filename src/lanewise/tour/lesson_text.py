"""A lesson as text for a terminal, and all of them as the page docs/tour.md."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from lanewise.tour.lesson import Lesson, lessons
from lanewise.tour.practice import FOLDER
from lanewise.tour.progress import Progress

__all__ = ["how_to_answer", "lesson_text", "list_text", "next_lesson", "page_markdown", "paragraphs"]

_WIDEST, _IN_DOCS = 96, 120
_EXAMPLES = {"ms": "1.5", "us": "120", "x": "1.5", "%": "20", "calls": "12", "word": "WORD"}
_UNITS = {"ms": "in ms", "us": "in us", "x": "times", "%": "in %", "calls": "a number", "word": "a word"}


def paragraphs(text: str, width: int) -> list[str]:
    """Wrapped lines, an empty one between paragraphs."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        lines += [*textwrap.wrap(block, width, break_long_words=False, break_on_hyphens=False), ""]
    return lines[:-1]


def how_to_answer(number: int, lesson: Lesson) -> str:
    """The command that answers a lesson, with a made-up answer of the right kind."""
    return f"lanewise tour {number} --answer {_EXAMPLES[lesson.unit]}"


def lesson_text(number: int, width: int) -> str:
    """One lesson: the question, what one needs to know, what to run, how to answer."""
    lesson, width = lessons()[number - 1], min(width, _WIDEST)
    title = f"Lesson {number} of {len(lessons())}: {lesson.title}"
    return "\n".join(
        [
            title, "=" * len(title), "", *paragraphs(lesson.question, width), "", *paragraphs(lesson.about, width), "",
            *(f"    {command}" for command in lesson.commands), "",
            f"Answer ({_UNITS[lesson.unit]}):  {how_to_answer(number, lesson)}",
        ]
    )  # fmt: skip


def next_lesson(progress: Progress) -> int | None:
    """Number of the first lesson that has no answer yet; None after the last."""
    return next((n for n, lesson in enumerate(lessons(), 1) if lesson.name not in progress.answered), None)


def list_text(progress: Progress) -> str:
    """The lessons with the answers given, and how to go on."""
    upcoming = next_lesson(progress)
    lines = ["A first recording, a fix and its proof, in twelve questions. No GPU is needed.", ""]
    for number, lesson in enumerate(lessons(), 1):
        answer = progress.answered.get(lesson.name)
        mark = "✓" if answer is not None else "→" if number == upcoming else " "
        lines.append(f"  {mark} {number:2}  {lesson.title}" + (f"  ({answer})" if answer is not None else ""))
    if not progress.folder:
        way = f"begin:  lanewise tour --start    (makes {FOLDER}/ to work in)"
    elif upcoming is None:
        way = "That was all of it. Now your own program:  lanewise run train.py"
    else:
        way = f"next:  lanewise tour {upcoming}    (in {progress.folder})"
    return "\n".join([*lines, "", way])


_BEFORE = f"""# A guided tour

Twelve questions lead from a first recording to a fix that is proven. You find each answer in a recording, most of them your
own, and lanewise checks it. It takes about a quarter of an hour, most of it reading, and needs no GPU: the lessons about
GPUs come with recordings from an H100.

You need Python 3.11 or newer. In a clone of the repository:

```bash
make tour                        # a virtual environment with lanewise, and a CPU build of torch if there is none
. .venv/bin/activate
lanewise tour --start            # puts a program and three recordings into {FOLDER}/
cd {FOLDER}
lanewise tour 1
```

Without a clone: `pip install 'lanewise[fix]' torch`, and on from the third line.

`lanewise tour` lists the lessons and how far you are. `lanewise tour 1` shows the first one, `lanewise tour 1 --answer 2.1`
checks your answer: a wrong one gets a hint, `--reveal` tells the answer. Progress is kept where your system keeps what
programs remember (`LANEWISE_STATE_DIR` names another folder); `lanewise tour --reset` forgets it.
"""
_AFTER = """## Your own program

```bash
lanewise run train.py            # record it, and say what it is bound by
lanewise view lanewise-out/train.json.gz     # the same as a page, with a timeline
lanewise fix train.py            # what lanewise can change by itself, as a diff
```

The report says what to do first, and what it would save; [Your first trace](first-trace.md) explains its parts, and
[Recording a trace](recording.md) helps where nothing was recorded. [`lanewise.optimize`](fix.md) tries compilers, layouts
and kernels on a model and keeps what is proven to be faster.
"""


def page_markdown(every: Sequence[Lesson] | None = None) -> str:
    """docs/tour.md: all lessons, with hint and explanation folded away."""
    parts = [_BEFORE]
    for number, lesson in enumerate(every or lessons(), 1):
        parts += [
            f"## {number}. {lesson.title}\n",
            f"**{lesson.question.strip()}**\n",
            "\n".join(paragraphs(lesson.about, _IN_DOCS)) + "\n",
            "\n".join(["```bash", *lesson.commands, f"{how_to_answer(number, lesson)}  # your answer", "```\n"]),
            "<details><summary>Hint</summary>\n\n" + "\n".join(paragraphs(lesson.hint, _IN_DOCS)) + "\n\n</details>\n",
            "<details><summary>What it means</summary>\n\n"
            + "\n".join(paragraphs(lesson.explanation, _IN_DOCS))
            + "\n\n</details>\n",
        ]
    return "\n".join([*parts, _AFTER])
