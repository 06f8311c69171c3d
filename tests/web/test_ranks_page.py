"""The page of a job: the map of ranks and steps, and the way from a rank to its own page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanewise.diagnose.explain import facts_of, report_of
from lanewise.diagnose.sections.ranks import JobTold, told_of_job
from lanewise.measure.distributed.gathering.read_ranks import RanksRead, read_ranks
from lanewise.show.page.job_page import job_html
from lanewise.show.page.job_server import JobServer
from lanewise.show.page.server import PageServer
from lanewise.trace.reader import read
from tests.support.corpus import REPOSITORY
from tests.support.real_jobs import GOOD, PIPELINE, job_paths

Open = Callable[..., Any]
LATE = REPOSITORY / "tests" / "data" / "ranks2"


@pytest.fixture(scope="module")
def late_job() -> tuple[RanksRead, JobTold]:
    found = read_ranks([str(LATE)], cache=False)
    return found, told_of_job(found, cache=False)


def page_at(open_page: Open, path: Path, told: JobTold, pages: dict[int, str], **options: Any) -> Any:
    path.write_text(job_html(told, "job", pages), encoding="utf-8")
    return open_page(path.as_uri(), **options).page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_late_rank_stands_out(
    open_page: Open, tmp_path: Path, late_job: tuple[RanksRead, JobTold], scheme: str
) -> None:
    _, told = late_job
    page = page_at(open_page, tmp_path / "job.html", told, {}, color_scheme=scheme, width=700)
    assert "Rank 1 is late: its own work takes 6.09 ms more per step" in page.locator("h1").inner_text()
    labels = page.locator(".ranks svg > g > text").all_text_contents()
    assert labels == ["rank 0", "rank 1 late"]
    rows = page.locator(".ranks svg > g")
    steps = len(told.job.ranks[0].contexts[0].time_ns)
    # Of two ranks the median lies between them.
    assert rows.nth(1).locator("rect.more").count() >= steps - 1
    assert rows.nth(0).locator("rect.less").count() >= steps - 1
    assert "more than the median rank" in rows.nth(1).locator("rect title").first.text_content()
    # Colours come from the theme, and wide tables scroll by themselves.
    assert page.evaluate("getComputedStyle(document.querySelector('.ranks rect.more')).fill") not in (
        "",
        "rgb(0, 0, 0)",
    )
    assert page.evaluate("document.documentElement.scrollWidth <= 700")
    headings = page.locator("h2").all_text_contents()
    assert "Ranks, per step without the profiler (2)" in headings
    assert "What late ranks do more (1)" in headings


def test_a_rank_leads_to_its_own_page(open_page: Open, tmp_path: Path, late_job: tuple[RanksRead, JobTold]) -> None:
    (tmp_path / "rank1.html").write_text("<title>the page of rank 1</title>")
    _, told = late_job
    page = page_at(open_page, tmp_path / "job.html", told, {1: "rank1.html"})
    page.locator("svg a", has_text="rank 1").click()
    page.wait_for_url("**/rank1.html")
    page.go_back()
    page.locator("td", has_text="rank1_6ms_rank1").first.click()
    page.wait_for_url("**/rank1.html")


def test_many_ranks_share_rows(open_page: Open, tmp_path: Path, late_job: tuple[RanksRead, JobTold]) -> None:
    _, told = late_job
    ranks = [told.job.ranks[row % 2] for row in range(1000)]
    from dataclasses import replace

    import msgspec
    import numpy as np

    job = replace(
        told.job,
        ranks=[msgspec.structs.replace(one, rank=row) for row, one in enumerate(ranks)],
        host_ns=np.tile(told.job.host_ns, 500),
        late=[replace(told.job.late[0], index=501)],
    )
    page = page_at(open_page, tmp_path / "job.html", told._replace(job=job), {})
    rows = page.locator(".ranks svg > g")
    assert rows.count() == 125
    assert page.locator(".ranks svg text.late").text_content() == "ranks 496 to 503 late"


def test_what_a_trace_says_is_text(open_page: Open, tmp_path: Path, late_job: tuple[RanksRead, JobTold]) -> None:
    import msgspec

    _, told = late_job
    bad = "</script><img src=x onerror=alert(1)>"
    told.job.ranks[0] = msgspec.structs.replace(told.job.ranks[0], file=bad)
    page = page_at(open_page, tmp_path / "job.html", told, {})
    assert page.locator("img").count() == 0


@pytest.fixture
def server() -> Iterator[JobServer]:
    found = read_ranks([str(path) for path in job_paths(PIPELINE)[:2]], cache=False)

    def page_of(row: int) -> PageServer:
        facts = facts_of(read(found.files[row], cache=False))
        return PageServer(facts, report_of(facts))

    one = JobServer(told_of_job(found, cache=False), "job", page_of)
    thread = threading.Thread(target=one.serve, daemon=True)
    thread.start()
    yield one
    one.close()
    thread.join()


def test_a_server_makes_the_page_of_a_rank_when_it_is_clicked(open_page: Open, server: JobServer) -> None:
    page = open_page(server.address).page
    # In the map and in the timelines.
    assert page.locator(".ranks svg a", has_text="rank 1").count() == 2
    page.locator(".locked svg a", has_text="rank 1").click()
    page.get_by_role("link", name="Timeline", exact=True).wait_for()
    assert "r4_pipeline_gpipe_rank1.json.gz" in page.locator("header .file").inner_text()
    page.go_back()
    assert page.locator(".ranks svg a").count() == 4


def test_the_server_answers_to_nobody_else(server: JobServer) -> None:
    import urllib.error
    import urllib.request

    base = server.address.rsplit("/", 2)[0]
    for path in ("/", "/wrong/", f"/{server.token}/rank/7", f"/{server.token}/rank/../1", f"/{server.token}/other"):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(base + path, timeout=20)
        assert error.value.code == 404
    asked = urllib.request.Request(server.address, headers={"Host": "example.com"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(asked, timeout=20)
    assert error.value.code == 403


def test_ranks_are_locked_on_a_collective_that_is_chosen(open_page: Open, tmp_path: Path) -> None:
    """Its end is the same place for all of them, and the others lie around it by the clock of each rank."""
    found = read_ranks([str(path) for path in job_paths(GOOD)], cache=False)
    told = told_of_job(found, cache=False)
    page = page_at(open_page, tmp_path / "job.html", told, {2: "rank2.html"})
    timelines = page.locator(".locked svg > g")
    assert timelines.count() == 4
    meetings = page.locator(".locked option").count()
    assert meetings >= 3
    assert timelines.nth(0).locator(".meeting").count() == meetings
    for which in (0, meetings - 1):
        page.locator(".locked select").select_option(str(which))
        ends = [
            float(bar.get_attribute("x") or 0) + float(bar.get_attribute("width") or 0)
            for bar in page.locator(".locked .chosen .moves").all()
        ]
        assert len(ends) == 4
        # Bars are at least 1.5 wide.
        assert max(ends) - min(ends) < 2
    timelines.nth(0).locator(".meeting").nth(1).click()
    assert page.locator(".locked select").input_value() == "1"
    assert "waits" in (timelines.nth(0).locator(".meeting title").first.text_content() or "")
    assert page.locator(".locked svg a").get_attribute("href") == "rank2.html"
