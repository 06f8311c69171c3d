"""Which rank is late because of its own work: real jobs of four ranks, and many made from them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec
import numpy as np
import pytest

from lanewise.diagnose.sections.rank_causes import cause_of, described, main_cause
from lanewise.measure.core import Core
from lanewise.measure.distributed.late_ranks import compare_ranks
from lanewise.measure.distributed.own.own_context import Context
from lanewise.measure.distributed.rank_summary import ContextTime, RankSummary, summarise
from tests.support.builder import TraceBuilder
from tests.support.made_ranks import exchanged, made_rank
from tests.support.planted_ranks import healthy, plant
from tests.support.real_jobs import GOOD, PIPELINE, PLANTED, job_summaries


@pytest.mark.parametrize("name", [GOOD, PIPELINE])
def test_a_healthy_job_has_no_late_rank(name: str) -> None:
    """Its hosts differ by 1.5 times and more while they are recorded, and one of them comes last to every collective."""
    job = compare_ranks(job_summaries(name))
    assert job.host_factor.max() > 1.4 * job.host_factor.min()
    assert job.late == []


@pytest.mark.parametrize("name", list(PLANTED))
def test_the_planted_rank_is_late_by_what_was_planted(name: str) -> None:
    rank, ms = PLANTED[name]
    job = compare_ranks(job_summaries(name))
    (late,) = job.late
    assert job.ranks[late.index].rank == rank
    assert late.more_ns == pytest.approx(ms * 1e6, rel=0.15)
    assert cause_of(main_cause(late)[0]) == "Python"


def host_rank(number: int, step_ns: list[int]) -> RankSummary:
    """A rank without a device: one operator, and another that takes so long in each step."""
    contexts = [
        ContextTime(Context("operator", name), time, 1.0)
        for name, time in (("aten::mm", [5_000_000] * len(step_ns)), ("aten::add", step_ns))
    ]
    return msgspec.structs.replace(made_rank(number), contexts=contexts, timed_ns=0.0)


@pytest.mark.parametrize(("longer", "is_late"), [(5, False), (7, True), (9, True)])
def test_what_disturbs_a_rank_in_about_half_of_its_steps_is_not_its_own(longer: int, is_late: bool) -> None:
    """Another program ran while an operator did, in five of nine steps: the median step is as late as those."""
    rest = 9 - longer
    ranks = [host_rank(0, [1_000_000] * 9), host_rank(1, [4_000_000] * longer + [1_000_000] * rest)]
    assert bool(compare_ranks(ranks).late) is is_late


def test_what_disturbs_one_rank_hides_no_other() -> None:
    ranks = [host_rank(0, [4_000_000] * 5 + [1_000_000] * 4), host_rank(1, [5_000_000] * 9)]
    sleeps = ContextTime(Context("sleep", "sleep"), [6_000_000] * 9, 1.0)
    late = msgspec.structs.replace(
        ranks[1], contexts=[ranks[0].contexts[0], host_rank(1, [1_000_000] * 9).contexts[1], sleeps]
    )
    assert [one.index for one in compare_ranks([ranks[0], late]).late] == [1]


def loops(number: int, times: int, around: Callable[[TraceBuilder], AbstractContextManager[object]]) -> RankSummary:
    """Steps of a few long operators, and one that is called so often: each call copies a number before it adds it."""
    b = TraceBuilder(metadata={"distributedInfo": {"rank": number, "world_size": 2}})
    for _ in range(6):
        with b.step():
            for _ in range(12):
                with b.op("aten::mm", head=800.0, tail=800.0):
                    pass
                b.wait(20.0)
            with around(b):
                for _ in range(times):
                    with b.op("aten::add_", head=4.0), b.op("aten::_to_copy", head=6.0), b.op("aten::copy_", head=3.0):
                        pass
                    b.wait(12.0)
    return summarise(Core(b.build()))


def bare(_: TraceBuilder) -> AbstractContextManager[object]:
    return nullcontext()


def annotated(b: TraceBuilder) -> AbstractContextManager[object]:
    return b.span("statistics")


def with_stacks(b: TraceBuilder) -> AbstractContextManager[object]:
    return b.frame("train.py(12): statistics")


@pytest.mark.parametrize(
    "around",
    [bare, annotated, with_stacks],
)
def test_a_loop_of_short_calls_is_its_operator_and_not_python(
    around: Callable[[TraceBuilder], AbstractContextManager[object]],
) -> None:
    """Half of its time lies between the calls, and much of the rest in copies inside them: none of that is the cause."""
    (late,) = compare_ranks([loops(0, 5, around), loops(1, 300, around)]).late
    main, whole = main_cause(late)
    assert late.index == 1
    assert (cause_of(main), main.context.name) == ("operators", "aten::add_")
    assert whole > 0.9 * late.more_ns
    assert "300 of them instead of 5" in described(main)


@pytest.mark.parametrize(
    ("context", "typical"), [(Context("operator", "aten::add_"), 6.0), (Context("sleep", "sleep"), 7.0)]
)
def test_a_host_that_was_slow_in_half_of_the_steps_counts_with_the_others(context: Context, typical: float) -> None:
    """As the replay has it; what the host does in one piece takes what it mostly takes."""
    time_ns = [round(ms * 1e6) for ms in (6, 7, 6, 7, 6, 11, 11, 11, 11)]
    assert ContextTime(context, time_ns, 1.0).typical_ns == typical * 1e6
    assert ContextTime(context, [], 1.0).typical_ns == 0.0


def test_the_order_of_the_ranks_does_not_matter() -> None:
    ranks = job_summaries(PIPELINE)
    assert compare_ranks(ranks[::-1]).more_ns.tolist() == compare_ranks(ranks).more_ns.tolist()


def test_a_stage_that_sleeps_is_late_in_a_pipeline_too() -> None:
    first, second, *rest = job_summaries(PIPELINE)
    at = next(row for row, one in enumerate(second.contexts) if one.context.until and not one.context.on_device)
    slow = second.contexts.copy()
    slow[at] = msgspec.structs.replace(slow[at], time_ns=[time + 2_000_000 for time in slow[at].time_ns], count=1.0)
    (late,) = compare_ranks([first, msgspec.structs.replace(second, contexts=slow), *rest]).late
    assert late.index == 1
    assert late.more_ns == pytest.approx(2e6, rel=0.3)


def stage(number: int, **kernels: tuple[float, int]) -> RankSummary:
    """A stage of a pipeline by what its kernels take in a step of 10 ms, and how many they are."""
    sent = exchanged("send", 0, 1000, ends=(number, 1 - number))
    contexts = [
        ContextTime(Context("kernel", name, inside="1x1x1"), [round(ms * 1e6)] * 2, float(count))
        for name, (ms, count) in kernels.items()
    ]
    return msgspec.structs.replace(made_rank(number, [sent]), contexts=contexts)


@pytest.mark.parametrize(
    ("own", "more", "ms"),
    [((3.0, 6), (0.9, 12), 3.0), ((3.0, 6), (1.9, 24), 4.4), ((0.4, 2), (1.9, 24), 1.4), ((0.4, 2), (0.9, 12), 0.0)],
    ids=["own kernels", "both", "more of the same", "its part"],
)
def test_a_stage_is_not_late_by_its_part_of_the_model(
    own: tuple[float, int], more: tuple[float, int], ms: float
) -> None:
    """A stage computes one gradient more than another: that is no part of what makes it late."""
    first = stage(0, gemm=(4.0, 8), gradient=(0.5, 8))
    second = stage(1, gemm=(4.0, 8), gradient=more, own=own)
    late = compare_ranks([first, second]).late
    assert sum(one.more_ns for one in late) / 1e6 == pytest.approx(ms)


def models() -> tuple[RankSummary, ...]:
    """Ranks whose kernels did not all run beside a collective."""
    return tuple(rank for rank in job_summaries(GOOD) if not any(one.shared for one in rank.contexts))


def test_planted_causes_are_found_in_99_of_100_jobs() -> None:
    seed = np.random.default_rng(22)
    wrong: list[object] = []
    for _ in range(100):
        ranks, planted = plant(healthy(models(), int(seed.integers(2, 17)), seed), seed)
        late = compare_ranks(ranks).late
        said = (late[0].index, cause_of(main_cause(late[0])[0])) if len(late) == 1 else late
        if said != (planted.rank, planted.cause) or abs(late[0].more_ns / planted.ns - 1) > 0.15:
            wrong.append((planted, said, [one.more_ns for one in late]))
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize(("kernels", "is_late"), [(True, False), (False, True)])
def test_a_host_that_submits_slowly_is_disturbed(kernels: bool, is_late: bool) -> None:
    """18 calls that each take 52 us longer: work on the CPU, but to submit takes a host as long whatever the data is."""

    def of(number: int, ns: int) -> RankSummary:
        names = [("aten::addmm", ns), *((f"aten::other{at}", 1_000_000) for at in range(6))]
        contexts = [ContextTime(Context("operator", name), [time] * 6, 18.0) for name, time in names]
        contexts += [ContextTime(Context("kernel", "gemm"), [5_000_000] * 6, 18.0)] if kernels else []
        return msgspec.structs.replace(made_rank(number), contexts=contexts, timed_ns=14e6)

    job = compare_ranks([of(0, 500_000), of(1, 1_440_000), of(2, 500_000)])
    assert bool(job.late) is is_late


@pytest.mark.slow
def test_one_of_a_thousand_ranks_is_found() -> None:
    seed = np.random.default_rng(24)
    ranks, planted = plant(healthy(models()[:1], 1000, seed), seed)
    begun = time.process_time()
    (late,) = compare_ranks(ranks).late
    assert time.process_time() - begun < 40
    assert late.index == planted.rank


def test_no_false_alarm_in_50_healthy_jobs() -> None:
    seed = np.random.default_rng(23)
    jobs = [healthy(models(), int(seed.integers(2, 17)), seed) for _ in range(50)]
    assert [job.late for ranks in jobs if (job := compare_ranks(ranks)).late] == []
