"""The course of one `optimize` by numbers: what is decided from which samples. Nothing is timed here."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from lanewise.fix.candidates.candidate import Candidate, Several
from lanewise.fix.gate.correctness import patches_of
from lanewise.fix.gate.speed.clocks import clock_note
from lanewise.fix.gate.speed.repeats import Repeats, only_for_seen_inputs
from lanewise.fix.gate.speed.timing import NULL, Samples, timing_of
from lanewise.fix.model import Attempt, Timing
from lanewise.fix.optimize import optimize
from lanewise.fix.time_budget import Budget, OutOfTime, uninterrupted
from lanewise.fix.trial import attempt, final
from lanewise.fix.trial.attempt import _unfinished
from lanewise.fix.trial.confidence import confidence, margin, profiler_note
from lanewise.fix.trial.final import EAGER, PLAN, Contest, decide, decide_again
from lanewise.fix.trial.ledger import Kept, Ledger
from lanewise.fix.trial.shares import captured_first, likeliest_first, most_s, needed_s, reserve_s, share_of
from lanewise.fix.trial.workbench import LONGEST_TIMING_S
from tests.fix.programs import planted


def candidate(name: str) -> Candidate:
    return Candidate(name, "planted", "whole", name, lambda _: Nothing())


class Nothing:
    def enable(self) -> None: ...
    def disable(self) -> None: ...


def ledger_of(*names: str, outcome: Any = "kept") -> Ledger:
    ledger = Ledger()
    ledger.kept = [Kept(candidate(name), Nothing()) for name in names]
    ledger.attempts = [Attempt(name, "planted", "whole", name, outcome, "") for name in names]
    return ledger


def samples(wrong: dict[str, str] | None = None, **medians_us: float) -> Samples:
    """Twelve rounds of three samples around each median, with 1 % of noise."""
    noise = np.random.default_rng(0)
    rounds = {
        name: [us * 1e3 * noise.normal(1, 0.01, 3) for _ in range(12)]
        for name, us in {**medians_us, NULL: medians_us[EAGER]}.items()
    }
    return Samples(rounds, wrong or {}, Repeats({}, {}), {})


LATENCY: Any = SimpleNamespace(goal="latency", subject=SimpleNamespace(cuda=True))


def outcomes(ledger: Ledger) -> dict[str, str]:
    return {attempt.name: attempt.outcome for attempt in ledger.attempts}


def test_what_is_left_of_a_plan_is_decided_from_samples_taken_before_any_profiler() -> None:
    contest = Contest(samples(eager=100, one=80, plan=50, compile=90), ["one", "two"], ["compile"])
    ledger = ledger_of("one", "two")
    whole = decide(LATENCY, ledger, contest)
    assert whole.eager is not None
    assert whole.eager.ratio == pytest.approx(2, rel=0.05)
    ledger.drop("two", "not credited", "the trace does not show it")
    left = decide_again(LATENCY, ledger, contest, refused=())
    assert left.eager is not None
    assert left.other is not None
    assert left.eager.ratio == pytest.approx(1.25, rel=0.05)
    assert left.other.ratio == pytest.approx(90 / 80, rel=0.05)
    assert left.best == "compile"
    assert outcomes(ledger) == {"one": "kept", "two": "not credited"}


def test_what_is_left_and_not_faster_by_itself_goes_too() -> None:
    contest = Contest(samples(eager=100, one=100, plan=50), ["one", "two"], [])
    ledger = ledger_of("one", "two")
    ledger.drop("two", "not credited", "")
    left = decide_again(LATENCY, ledger, contest, refused=())
    assert not ledger.kept
    assert left.eager is None
    assert outcomes(ledger) == {"one": "not faster", "two": "not credited"}


def graph_and_layout() -> tuple[Ledger, Contest]:
    """A layout with a graph on top of it, and the graph alone, which is nearly as fast."""
    ledger = ledger_of("layout", "graph")
    ledger.alternatives = [Kept(candidate("graph"), Nothing()), Kept(candidate("slow"), Nothing(), proven=False)]
    ledger.attempts.append(Attempt("slow", "", "", "", "not faster", ""))
    arms = {"eager": 203, "graph": 185, "slow": 140, "layout": 156, "plan": 142}
    return ledger, Contest(samples(**arms), ["layout", "graph"], ["graph", "slow"])


def test_where_a_trace_does_not_show_the_plan_the_next_best_way_takes_its_place() -> None:
    ledger, contest = graph_and_layout()
    assert ledger.names == ["layout", "graph"]
    ledger.drop("layout", "not credited", "the trace does not show it")
    assert not ledger.kept
    found = decide_again(LATENCY, ledger, contest, refused=())
    assert ledger.names == ["graph"]
    assert outcomes(ledger)["graph"] == "kept"
    assert found.eager is not None
    assert found.eager.ratio == pytest.approx(203 / 185, rel=0.02)
    ledger.drop("graph", "not credited", "the trace does not show that either")
    found = decide_again(LATENCY, ledger, contest, refused={"graph"})
    assert not ledger.kept
    assert found.eager is None


def test_what_was_not_proven_is_compared_and_never_taken() -> None:
    ledger, contest = graph_and_layout()
    found = decide(LATENCY, ledger, contest)
    assert ledger.names == ["layout", "graph"]
    assert found.best == "slow", "the plan is held against it all the same"


def test_a_plan_that_is_not_faster_in_the_end_gives_way_to_one_that_is() -> None:
    contest = Contest(samples(eager=100, plan=100, compile=50), ["one"], ["compile"])
    ledger = ledger_of("one")
    ledger.alternatives = [Kept(candidate("compile"), Nothing())]
    ledger.attempts.append(Attempt("compile", "compile", "whole", "", "not faster", ""))
    decide(LATENCY, ledger, contest)
    assert ledger.names == ["compile"]


def test_the_best_alternative_becomes_the_plan() -> None:
    contest = Contest(samples(eager=100, plan=80, compile=50), ["one"], ["compile"])
    ledger = ledger_of("one")
    ledger.alternatives = [Kept(candidate("compile"), Nothing())]
    ledger.attempts.append(Attempt("compile", "compile", "whole", "", "not faster", ""))
    found = decide(LATENCY, ledger, contest)
    assert ledger.names == ["compile"]
    assert found.best == "one"
    assert outcomes(ledger) == {"one": "surpassed", "compile": "kept"}


def test_a_plan_that_gave_other_results_while_it_was_timed_is_wrong() -> None:
    contest = Contest(samples({PLAN: "another result"}, eager=100, plan=50), ["one"], [])
    ledger = ledger_of("one")
    assert decide(LATENCY, ledger, contest).eager is None
    assert outcomes(ledger) == {"one": "wrong"}


@pytest.mark.parametrize(
    ("plan", "verdict"), [(45.0, "faster"), (68.0, "invalid"), (96.0, "slower"), (66.3, "invalid")]
)
def test_a_program_that_differs_from_itself_widens_the_interval_and_hides_only_what_is_as_small(
    plan: float, verdict: str
) -> None:
    """Seen on a card: a graph of 45 us against 68 was thrown away because the program was 3 % off itself."""
    noise = np.random.default_rng(0)
    rounds = {
        name: [us * 1e3 * noise.normal(1, 0.005, 3) for _ in range(15)]
        for name, us in {EAGER: 68.0, NULL: 70.0, PLAN: plan}.items()
    }
    found = timing_of(rounds, EAGER, PLAN)
    assert found.verdict == verdict
    assert found.noise == pytest.approx(68 / 70, rel=0.01)
    plain = timing_of({name: rounds[name] for name in (EAGER, PLAN)}, EAGER, PLAN)
    assert found.ratio == plain.ratio
    assert found.low == pytest.approx(plain.low / 1.03, rel=0.01)
    assert found.high == pytest.approx(plain.high * 1.03, rel=0.01)


def test_dropping_takes_along_what_was_built_on_top() -> None:
    ledger = ledger_of("one", "two", "three")
    ledger.drop("two", "wrong", "off by one")
    assert ledger.names == ["one"]
    assert [a.reason for a in ledger.attempts] == ["", "off by one", "it was built on two, which is not kept"]


def test_chance_among_many_is_not_kept() -> None:
    ledger = ledger_of("lucky")
    lucky = Timing(1.05, 1.02, 1.08, 0.03, 0.04, "faster", 105.0, 100.0, 10)
    ledger.attempts = [Attempt("lucky", "", "", "", "kept", "", timing=lucky)]
    dull = Timing(1.0, 0.98, 1.02, 0.03, 0.9, "not enough samples", 100.0, 100.0, 10)
    ledger.attempts += [Attempt(f"dull {n}", "", "", "", "not faster", "", timing=dull) for n in range(5)]
    ledger.drop_chance(also_from_plan=True)
    assert not ledger.kept
    assert "not beyond chance among 6" in ledger.attempts[0].reason


def test_after_a_profiler_a_gain_has_to_be_larger_and_the_plan_says_so() -> None:
    assert confidence([], cuda=True) == "high"
    assert profiler_note([], cuda=False) == ""
    for cuda, word in ((True, "low"), (False, "medium")):
        assert confidence(["torch.profiler"], cuda=cuda) == word
        assert margin(["torch.profiler"], cuda=cuda) > margin([], cuda=cuda)
        note = profiler_note(["torch.profiler"], cuda=cuda)
        assert f"{word} confidence" in note
        assert "torch.profiler" in note


def test_speed_on_repeated_inputs_only_is_told_from_real_speed() -> None:
    def said(
        fresh: tuple[float, float],
        seen: tuple[float, float],
        *,
        noise: float = 0.02,
        gain: float = 0.0,
        rounds: int = 10,
    ) -> tuple[str, bool]:
        draw = np.random.default_rng(0)

        def drawn(times: tuple[float, float]) -> dict[str, list[float]]:
            arms = zip((EAGER, PLAN), times, strict=True)
            return {arm: [us * draw.lognormal(0, noise) for _ in range(rounds)] for arm, us in arms}

        repeats = Repeats(drawn(fresh), drawn(seen))
        return only_for_seen_inputs(repeats, EAGER, PLAN, gain=gain or seen[0] / seen[1])

    kept, doubt = "it saves time only on inputs that it was called with before", "it is not proven to save time"
    assert said((100, 102), (100, 20)) == (kept, True)
    assert said((100, 102), (100, 90)) == (kept, True), "a small gain is told apart where times are steady"
    assert said((100, 25), (100, 20)) == ("", False)
    assert said((349, 160), (349, 80)) == ("", False), (
        "the first calls after others of all arms take longer, and still gain"
    )
    assert said((112, 111), (110, 110), gain=1.02) == ("", False), "few calls in a row need not show a small gain"
    assert said((112, 112), (110, 110), gain=5)[0].startswith(doubt), "but a large one"
    assert said((100, 100), (100, 98), noise=0.1) == ("", False), "what is lost in noise is nobody's fault"
    for noise in (0.3, 0.9, 2.0):
        assert said((100, 101), (100, 20), noise=noise)[0], "a large gain that new inputs do not show is never kept"
        assert said((100, 101), (100, 0.5), noise=noise)[0]
    assert said((100, 20), (100, 20), rounds=3)[0].startswith(doubt), "too few to tell"
    nothing: dict[str, list[float]] = {EAGER: [], PLAN: []}
    assert only_for_seen_inputs(Repeats(nothing, nothing), EAGER, PLAN, gain=9) == ("", False), "it was not asked"


def test_calls_without_floating_values_are_varied_in_one_way_only() -> None:
    import torch

    from lanewise.fix.gate.inputs import VALUES, adversarial

    assert len(adversarial(((torch.randn(3),), {}), seeds=2)) == 2 * len(VALUES)
    whole = adversarial(((torch.arange(50),), {}), seeds=2)
    assert [one.name for one in whole] == ["whole numbers, seed 0", "whole numbers, seed 1"]
    assert not torch.equal(*(one.make()[0][0] for one in whole))


def test_new_inputs_are_new_whatever_they_are_made_of() -> None:
    import torch

    from lanewise.fix.gate.inputs import jittered, renewed
    from lanewise.fix.tensors import copy_call

    for recorded in (((torch.randn(4, 8),), {}), ((torch.arange(32).view(4, 8),), {})):
        call = copy_call(recorded)
        address, seen = call[0][0].data_ptr(), [recorded[0][0].clone()]
        for number in range(3):
            renewed(call, recorded, number)
            assert call[0][0].data_ptr() == address
            assert not any(torch.equal(call[0][0], other) for other in seen)
            seen.append(call[0][0].clone())
        if not recorded[0][0].is_floating_point():
            assert torch.equal(call[0][0].flatten().sort().values, recorded[0][0].flatten()), "the same numbers"
        jittered(call, recorded, 0)
        assert not any(torch.equal(call[0][0], other) for other in seen) or not recorded[0][0].is_floating_point()


def test_no_candidate_may_use_all_the_time_that_is_left() -> None:
    cheap = [candidate(f"cheap {at}") for at in range(8)]
    compiling = [replace(candidate(f"compile {at}"), compiles=True) for at in range(3)]
    everything = [*cheap, *compiling]
    shares = [share_of(one, everything[at:]) for at, one in enumerate(everything)]
    assert all(share == pytest.approx(0.2) for share in shares[:5]), "a cheap one waits behind no other for long"
    assert shares[8:] == pytest.approx([2 / 3, 1.0, 1.0]), "the last three are those that take long"
    assert share_of(compiling[0], everything) == pytest.approx(0.6), "a compilation that is stopped has given nothing"
    assert share_of(cheap[0], [cheap[0], compiling[0]]) == pytest.approx(2 / 5), "the compiler gets the larger part"
    assert needed_s(cheap[0], compile_s=5, judging_s=1) == 1
    assert needed_s(compiling[0], compile_s=5, judging_s=1) == 6
    assert needed_s(replace(compiling[0], again=0.4), compile_s=5, judging_s=1) == 3
    assert most_s(cheap[0], everything, 4.0, 2.0) == pytest.approx(3.0), "what is begun gets the time that it needs"
    assert most_s(cheap[0], everything, 100.0, 2.0) == pytest.approx(20.0)
    left = 100.0
    for share in shares[:8]:
        left *= 1 - share
    assert left > 9, "eight that use up their share leave something for the compiler"


def test_in_a_short_time_the_likeliest_is_tried_first() -> None:
    fused, layout = replace(candidate("fused"), family="optimizer"), replace(candidate("layout"), family="layout")
    compiler = replace(candidate("compile"), compiles=True, alternative=True)
    after = replace(candidate("compile-cuda-graph"), follows="compile")
    rewritten = replace(candidate("compile-rewritten"), compiles=True, replaces=True)
    every = [fused, layout, candidate("threads"), compiler, after, rewritten]
    assert likeliest_first(every, 80.0) == every
    short = [one.name for one in likeliest_first(every, 20.0)]
    assert short == ["fused", "compile", "compile-cuda-graph", "compile-rewritten", "layout", "threads"]


def test_with_time_for_one_compilation_its_graph_comes_first() -> None:
    graph, compiler = candidate("cuda-graph"), replace(candidate("compile"), compiles=True)
    after = replace(candidate("compile-cuda-graph"), follows="compile")
    every = [graph, compiler, after, candidate("other")]
    assert captured_first(every, 80.0) == every
    short = captured_first(every, 38.0)
    assert [one.name for one in short] == ["cuda-graph", "compile-cuda-graph", "compile", "other"]
    assert (short[1].compiles, short[1].follows) == (True, "")
    assert captured_first([graph, after], 38.0) == [graph, after], "what it takes up was tried before"
    assert most_s(short[1], short[1:], 30.0, 0.0, judging_s=2.0) == pytest.approx(30)


def test_with_time_for_one_compilation_it_gets_all_but_what_its_graph_needs() -> None:
    compiler = replace(candidate("compile"), compiles=True)
    every = [
        compiler,
        replace(candidate("compile-cuda-graph"), follows="compile"),
        replace(candidate("compile-reduce-overhead"), compiles=True),
        *[candidate(f"other {at}") for at in range(12)],
    ]
    assert most_s(compiler, every, 30.0, 0.0, judging_s=2.0) == pytest.approx(27), "a stopped one gives nothing"
    assert most_s(compiler, every, 90.0, 0.0, judging_s=2.0) == pytest.approx(54)
    assert reserve_s(50, call_s=1e-4, arms=5, records=False) == pytest.approx(3.0)
    assert reserve_s(40, call_s=1e-2, arms=5, records=False) == pytest.approx(3.2)


def test_the_last_compiler_gets_what_nothing_else_needs() -> None:
    compiler = replace(candidate("compile"), compiles=True)
    others = [candidate(f"cheap {at}") for at in range(12)]
    assert most_s(compiler, [compiler, *others], 100.0, 0.0, judging_s=1.0) == pytest.approx(82)
    assert most_s(compiler, [compiler, *others], 100.0, 0.0, judging_s=50.0) == pytest.approx(60), "its share at least"
    blocks = replace(candidate("compile-blocks"), compiles=True)
    assert most_s(compiler, [compiler, blocks, *others], 100.0, 0.0, judging_s=1.0) == pytest.approx(60)
    assert reserve_s(120, call_s=1e-4, arms=5) < 0.07 * 120, "a small program is compared and recorded in a few seconds"
    assert reserve_s(120, call_s=0.2, arms=5) == 30
    assert reserve_s(40, call_s=1e-4, arms=5) < 10


def test_a_plan_of_threads_says_that_it_holds_on_a_machine_as_busy_as_this(work_clock: Any) -> None:
    import torch

    from lanewise.fix.candidates import threads
    from lanewise.fix.optimize import optimize
    from lanewise.fix.subject import make_subject
    from tests.fix.programs import Repeats, done_once, planted

    module, x = Repeats(work_clock).eval(), torch.randn(64, 64)
    torch.set_num_threads(7)
    found = threads.candidates(make_subject(module, x))
    torch.set_num_threads(1)
    assert found
    assert all("load of" in one.caveat and "otherwise" in one.caveat for one in found)
    fast = replace(planted("fast", done_once), caveat=found[0].caveat)
    plan = optimize(module, x, budget="40s", only=["fast"], extra=[fast], trace=False)
    assert plan.report.winner == ["fast"], plan.summary()
    assert f"note: fast: {found[0].caveat}" in plan.summary()


def test_time_given_inside_of_time_given_ends_with_the_outer_one() -> None:
    clock = Budget(10)
    began = time.monotonic()
    rung: list[float] = []
    try:
        with clock.at_most(0.2):
            try:
                with clock.at_most(5):
                    time.sleep(3)
            except OutOfTime:
                rung.append(time.monotonic() - began)
            time.sleep(3)
    except OutOfTime:
        rung.append(time.monotonic() - began)
    assert len(rung) == 2
    assert 0.1 < rung[0] <= rung[1] < 2
    with clock.at_most(0.2), pytest.raises(OutOfTime), clock.at_most(0.05):
        time.sleep(3)
    time.sleep(0.3)  # nothing rings afterwards


def test_time_that_is_up_while_an_object_is_freed_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    class Freed:
        def __del__(self) -> None:
            time.sleep(0.3)

    def work() -> None:
        Freed()
        time.sleep(3)

    with pytest.raises(OutOfTime), Budget(10).at_most(0.1):
        work()
    assert "OutOfTime" not in capfd.readouterr().err


def test_what_must_not_be_left_half_done_is_ended_first() -> None:
    done: list[str] = []

    def work() -> None:
        with uninterrupted():
            time.sleep(0.3)
            done.append("captured")
        time.sleep(5)
        done.append("too late")

    began = time.monotonic()
    with pytest.raises(OutOfTime), Budget(10).at_most(0.1):
        work()
    assert done == ["captured"]
    assert time.monotonic() - began < 3

    def pressed() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            done.append("captured again")
        done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        pressed()
    assert done == ["captured", "captured again"]


def test_right_results_of_low_precision_may_be_apart_by_what_passes() -> None:
    import torch

    from lanewise.fix.gate.speed.timing import _alike

    a = torch.ones(100, dtype=torch.bfloat16)
    b = a.clone()
    b[0] = 1.023
    assert not _alike([a], [b], lambda _: 0.01)
    assert _alike([a], [b], lambda _: 0.03)
    assert not _alike([a], [2 * b], lambda _: 0.03)


def test_what_takes_up_the_work_of_another_is_not_tried_without_it() -> None:
    ledger = ledger_of("compile", outcome="out of budget")
    graph = replace(candidate("compile-cuda-graph"), follows="compile")
    assert _unfinished(ledger, graph) == "compile, which it takes up, was not finished"
    assert _unfinished(ledger, candidate("cuda-graph")) == ""
    assert _unfinished(ledger_of("compile", outcome="not faster"), graph) == ""


def test_arms_that_ran_at_other_clocks_are_told() -> None:
    assert clock_note({}) == ""
    assert clock_note({EAGER: [1980.0] * 10, PLAN: [1980.0] * 9 + [1500.0]}) == "", "one round of ten"
    assert clock_note({EAGER: [0.0] * 10, PLAN: [1980.0] * 10}) == "", "not known is not different"
    said = clock_note({EAGER: [1980.0] * 10, NULL: [1980.0] * 10, PLAN: [1755.0] * 10})
    assert said.endswith("in 10 of 10 rounds: 1755 MHz in plan, 1980 in eager")


@pytest.mark.parametrize(("goal", "waits"), [("latency", True), ("throughput", False)])
def test_latency_is_that_of_calls_that_are_waited_for(goal: str, waits: bool) -> None:
    import torch

    from lanewise.fix.gate.speed.timing import _block
    from lanewise.fix.state import State
    from lanewise.fix.subject import make_subject
    from lanewise.fix.trial.workbench import Bench

    said: list[str] = []
    subject: Any = make_subject(torch.nn.Linear(2, 2).eval(), torch.randn(1, 2))
    run = subject.run
    subject.run = lambda call: (said.append("call"), run(call))[1]
    subject.wait = lambda: said.append("wait")
    nothing: Any = None
    bench = Bench(subject, nothing, nothing, goal, [], nothing, nothing, 0.0)
    _block(subject, State(subject), Nothing(), subject.calls, 3, each=bench.each)
    first = said[: said.index("wait", 1) + 1]
    assert (first == ["wait", "call", "wait"]) == waits
    subject.kind = "step"
    assert not bench.each


def test_a_plan_has_one_engine_and_the_one_before_comes_back_if_the_new_one_was_chance() -> None:
    ledger = Ledger()
    part = candidate("part")
    graph, compiled = (replace(candidate(name), engine=True) for name in ("graph", "compiled"))
    sure = Timing(2.0, 1.9, 2.1, 0.02, 1e-9, "faster", 100.0, 50.0, 20)
    chance = Timing(1.05, 1.02, 1.08, 0.02, 0.06, "faster", 50.0, 48.0, 10)
    for one, timing in ((part, sure), (graph, sure), (compiled, chance)):
        assert [kept.candidate.name for kept in ledger.below(one)] == ([] if one is part else ["part"])
        ledger.attempts.append(Attempt(one.name, "planted", "whole", one.name, "kept", "", timing=timing))
        ledger.keep(Kept(one, Nothing()))
    assert ledger.names == ["part", "compiled"]
    assert outcomes(ledger) == {"part": "kept", "graph": "surpassed", "compiled": "kept"}
    ledger.drop_chance(also_from_plan=True)
    assert ledger.names == ["part", "graph"]
    assert outcomes(ledger) == {"part": "kept", "graph": "kept", "compiled": "not faster"}


def test_a_part_takes_the_place_of_a_graph_and_the_next_part_is_built_on_it() -> None:
    """A graph copies inputs and results: for one kernel over many rows that takes longer than launching it."""
    ledger = Ledger()
    layout, kernel, other = (replace(candidate(name), family="kernel") for name in ("layout", "kernel", "other"))
    graph = replace(candidate("graph"), engine=True)
    alone = replace(kernel, engine=True)
    for one, below in (
        (layout, []),
        (graph, ["layout"]),
        (alone, ["layout"]),
        (other, ["layout", "kernel"]),
        (graph, ["layout", "other"]),
    ):
        assert [kept.candidate.name for kept in ledger.below(one)] == below
        ledger.keep(Kept(one, Nothing()))
    assert [kept.candidate.name for kept in ledger.below(kernel)] == ["layout", "other"]


@pytest.mark.parametrize(("us", "outcome"), [(8, "kept"), (99.8, "not faster")])
def test_what_is_proven_only_in_the_end_is_the_plan_too(us: float, outcome: str) -> None:
    bench: Any = SimpleNamespace(goal="latency", subject=SimpleNamespace(cuda=True))
    ledger = ledger_of("graph", outcome="not faster")
    ledger.alternatives, ledger.kept = [*ledger.kept], []
    contest = Contest(samples(eager=100, graph=us), [], ["graph"])
    found = decide(bench, ledger, contest)
    assert outcomes(ledger) == {"graph": outcome}
    assert ledger.names == (["graph"] if outcome == "kept" else [])
    assert (found.eager is not None) == (outcome == "kept")
    if found.eager is not None:
        assert found.eager.ratio == pytest.approx(12.5, rel=0.05)
        assert found.best == EAGER
        assert "only in the final comparison" in ledger.notes[-1]


def test_a_budget_that_is_spent_leaves_the_final_comparison_time_for_enough_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of large calls: with fewer rounds than are enough, all that was found would be dropped."""
    asked: list[Any] = []

    def measure(*args: Any, **options: Any) -> Samples:
        asked.append(args[3])
        return samples(eager=100.0, plan=50.0)

    monkeypatch.setattr(final, "measure", measure)
    monkeypatch.setattr(final, "build_alternatives", lambda *_: None)
    ledger, clock = ledger_of("compile"), Budget(20)
    clock.lent = -clock.seconds  # nothing is left
    limits: list[float] = []
    at_most = clock.at_most
    monkeypatch.setattr(clock, "at_most", lambda seconds: limits.append(seconds) or at_most(seconds))
    bench: Any = SimpleNamespace(
        clock=clock, subject=None, state=None, each=False, gate=SimpleNamespace(apart=lambda *_: 0.0)
    )
    contest = final.hold_contest(bench, ledger)
    assert contest.samples is not None
    (schedule,) = asked
    assert schedule.patience * schedule.seconds >= LONGEST_TIMING_S
    assert max(limits) >= LONGEST_TIMING_S
    assert ledger.names == ["compile"]


def test_no_patch_learns_while_it_is_timed(one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that learns asks about everything in every call: half a millisecond for a module of many parts."""
    seen: list[bool] = []
    first_look: Any = attempt._first_look

    def watched(bench: Any, ledger: Any, *args: Any) -> Any:
        whole = next(one for one in args if isinstance(one, Several))
        seen.extend(patch.dispatch.learning for patch in patches_of(whole))
        return first_look(bench, ledger, *args)

    monkeypatch.setattr(attempt, "_first_look", watched)
    same = planted("same", lambda module, original: original)
    optimize(torch.nn.Linear(8, 8), torch.ones(2, 8), budget="20s", only=["same"], extra=[same], trace=False)
    assert seen == [False]
