"""What the diagnoses say about a job of several ranks."""

from __future__ import annotations

from dataclasses import replace

from lanewise.diagnose.engine import diagnose
from lanewise.diagnose.settings import Settings
from lanewise.measure.facts import Facts
from lanewise.report.model import TextBlock
from lanewise.report.quantity import text

__all__ = ["finding_sentences"]


def finding_sentences(job: Facts, settings: Settings) -> list[TextBlock]:
    """The findings on communication that the project's settings leave in, as sentences with their codes.

    A late rank is named whatever the first rank would gain: if that is the late one, its own findings hold the time.
    """
    findings, _ = diagnose(job, replace(settings, select=("DIS",)))
    return [
        TextBlock("{code}: {title}", {"code": text(finding.code), "title": text(finding.title)})
        for finding in findings
        if settings.names(finding.code)
        and finding.code.startswith("DIS")
        and (finding.kind != "note" or finding.code == "DIS102")
    ]
