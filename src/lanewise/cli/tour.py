"""`lanewise tour`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lanewise.cli.common import console
from lanewise.errors import UsageError

__all__ = ["tour"]


@click.command()
@click.argument("number", metavar="[LESSON]", type=click.IntRange(min=1), required=False)
@click.option("--answer", metavar="ANSWER", help="Check an answer: a number, with or without its unit, or a word.")
@click.option("--reveal", is_flag=True, help="Tell the answer, and what it means.")
@click.option("--start", is_flag=True, help="Put a program and recordings to practise on into ./lanewise-tour.")
@click.option("--reset", is_flag=True, help="Forget which lessons were answered.")
def tour(number: int | None, answer: str | None, reveal: bool, start: bool, reset: bool) -> None:
    """Learn it in twelve lessons: a question, what to run, and a check of your answer against your own recording.

    Without a number: the lessons, and how far you are.
    """
    from lanewise.tour.lesson import lessons
    from lanewise.tour.lesson_text import lesson_text, list_text

    if reset:
        from lanewise.tour.progress import forget

        forget()
        click.echo("forgotten; begin with: lanewise tour --start", err=True)
    elif start:
        _start()
    elif number is None:
        if answer is not None or reveal:
            raise UsageError("which lesson? lanewise tour LESSON --answer ANSWER")
        from lanewise.tour.progress import load_progress

        click.echo(list_text(load_progress()))
    elif number > len(lessons()):
        raise UsageError(f"there is no lesson {number}; the last one is {len(lessons())}")
    elif answer is not None or reveal:
        _check(number, answer)
    else:
        click.echo(lesson_text(number, console().width))


def _start() -> None:
    from lanewise.tour.practice import FOLDER
    from lanewise.tour.practice import start as put_files
    from lanewise.tour.progress import load_progress, save_progress

    folder = Path(FOLDER)
    names = put_files(folder)
    progress = load_progress()
    progress.folder = str(folder.resolve())
    save_progress(progress)
    click.echo(
        f"in {FOLDER}: {', '.join(names)}" if names else f"everything is in {FOLDER} already; nothing was changed"
    )
    click.echo(f"next:  cd {FOLDER}    and then    lanewise tour 1")


def _check(number: int, answer: str | None) -> None:
    """Say whether an answer is right, or what is; exit code 1 for a wrong one."""
    from lanewise.tour.lesson import lessons
    from lanewise.tour.lesson_text import next_lesson, paragraphs
    from lanewise.tour.mark import is_right, shown_truth
    from lanewise.tour.practice import PROGRAM
    from lanewise.tour.progress import load_progress, save_progress
    from lanewise.tour.truths import TRUTHS

    lesson, progress, width = lessons()[number - 1], load_progress(), console().width
    here = Path.cwd()
    if not (here / PROGRAM).is_file():
        if not progress.folder:
            raise UsageError("the files of the tour are not here: lanewise tour --start puts them into a folder")
        here = Path(progress.folder)
    truth = TRUTHS[lesson.truth](here)
    told = shown_truth(truth, lesson)
    if answer is not None and not is_right(answer, truth, lesson):
        click.echo("\n".join(paragraphs(f"Not quite. {lesson.hint}", width)))
        sys.exit(1)
    first = f"Right: {told}." if answer is not None else f"It is {told}."
    click.echo("\n".join([first, "", *paragraphs(lesson.explanation, width), ""]))
    if answer is not None:
        progress.answered[lesson.name] = told
        save_progress(progress)
    upcoming = next_lesson(progress) if answer is not None else number + 1
    if upcoming is not None and upcoming <= len(lessons()):
        click.echo(f"next:  lanewise tour {upcoming}")
    else:
        click.echo("That was the last one. Now your own program:  lanewise run train.py")
