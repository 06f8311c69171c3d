"""`optimize` end to end on this machine's CPU: without a compiler, which has tests of its own."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lanewise
from lanewise.errors import InputError, LanewiseError, UsageError
from lanewise.fix.candidates.attention_backend import with_backend
from lanewise.fix.candidates.candidate import Candidate
from lanewise.fix.candidates.catalogue import catalogue
from lanewise.fix.candidates.fused import match_module
from lanewise.fix.gate.correctness import Correctness
from lanewise.fix.model import SCHEMA, Attempt
from lanewise.fix.optimize import optimize
from lanewise.fix.patch import ForwardPatch
from lanewise.fix.plans.plan import load_plan
from lanewise.fix.plans.plan_cache import find_plan, keep_plan
from lanewise.fix.state import State
from lanewise.fix.subject import Subject, make_subject
from lanewise.fix.time_budget import Budget, OutOfTime, seconds_of
from lanewise.fix.trial import course
from lanewise.fix.trial.credit import credit
from lanewise.fix.trial.ledger import Kept, Ledger
from lanewise.fix.trial.prepare import first_calls
from lanewise.fix.trial.workbench import make_bench
from lanewise.fix.work.worklist import WorkList
from lanewise.show.plan.plan_text import plan_json, plan_markdown, plan_sentence, render_plan
from lanewise.trace.cores import usable_cores
from tests.fix.conftest import WorkClock
from tests.fix.programs import Repeats, done_once, planted
from tests.support.command import lanewise as command

# Proof by timing takes seconds and a machine that is not busy with the rest of the suite.
pytestmark = pytest.mark.slow


class Layers(nn.Module):
    """Many small layers and parameters: the optimizer's way of updating matters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(30)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def training() -> tuple[Layers, torch.optim.Optimizer, Any]:
    model = Layers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


@pytest.mark.usefixtures("one_thread")
def test_a_training_step_gets_its_fused_optimizer_and_the_trace_shows_it() -> None:
    model, optimizer, step = training()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    plan = optimize(step, torch.randn(8, 16), budget="60s", only=["optimizer-fused"])
    assert plan.report.kind == "step"
    assert plan.report.winner == ["optimizer-fused"], plan.summary()
    (attempt,) = plan.report.attempts
    assert [shown.seen for shown in attempt.shown] == [True]
    assert attempt.numeric_class in {"exact", "same precision"}
    assert plan.report.seconds <= 60 * 1.2
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)), "optimizing trains nothing"
    assert not optimizer.state, "and leaves no optimizer state"
    with plan:
        assert optimizer.param_groups[0]["fused"]
        plan.call(torch.randn(8, 16))
    assert not optimizer.param_groups[0]["fused"]
    assert optimizer.param_groups[0]["foreach"] is False
    assert optimizer.state, "what is trained under the plan stays"
    plan.call(torch.randn(8, 16))


def test_a_gain_that_the_trace_does_not_show_is_not_credited(work_clock: WorkClock) -> None:
    from dataclasses import replace

    from lanewise.fix.candidates.candidate import Prediction

    good = planted("good", done_once)
    sees = Prediction("fewer operators", lambda a, b: (b.operators_in_all < a.operators_in_all, "counted"))
    misses = Prediction("a kernel that is not there", lambda a, b: (b.kernel_named("magic") > 0, "0 per call"))
    x = torch.randn(64, 64)
    for prediction, outcome in ((sees, "kept"), (misses, "not credited")):
        candidate = replace(good, predictions=(prediction,))
        plan = optimize(Repeats(work_clock).eval(), x, budget="40s", only=["good"], extra=[candidate])
        (attempt,) = plan.report.attempts
        assert attempt.outcome == outcome, attempt
        assert bool(plan) == (outcome == "kept")
        assert (plan.report.against_eager is not None) == bool(plan)


@pytest.mark.parametrize("profilers", [[], ["torch.profiler"]], ids=["fresh process", "after a profiler"])
def test_after_a_profiler_a_small_gain_is_not_kept_and_the_plan_says_why(
    work_clock: WorkClock, monkeypatch: pytest.MonkeyPatch, profilers: list[str]
) -> None:
    from lanewise.capture.profiling import history
    from lanewise.fix.trial import course

    monkeypatch.setattr(history, "_noted", [])
    monkeypatch.setattr(course, "profilers_so_far", lambda: list(profilers))

    class Works(nn.Module):
        def forward(self, x: torch.Tensor, us: float = 103_000.0) -> torch.Tensor:
            work_clock.spend(us)
            return torch.tanh(x)

    good = planted("good", lambda module, original: lambda x: original(x, 100_000.0))
    plan = optimize(Works().eval(), torch.randn(8, 8), budget="40s", only=["good"], extra=[good], trace=False)
    (attempt,) = plan.report.attempts
    assert attempt.timing is not None
    assert attempt.timing.verdict == "faster"
    assert plan.report.profilers == profilers
    if profilers:
        assert (attempt.outcome, plan.report.confidence) == ("not faster", "medium")
        assert "after a profiler in this process" in attempt.reason
        assert "fresh process" in plan.report.notes[0]
    else:
        assert (attempt.outcome, plan.report.confidence) == ("kept", "high")
        assert plan.report.notes == []


def test_a_part_is_shown_without_the_engine_that_hides_its_operators() -> None:
    """What a graph replays has no operators; here it is a kept result that hides them."""

    def replayed(module: Any, original: Any) -> Any:
        kept: list[torch.Tensor] = []

        def forward(x: torch.Tensor) -> torch.Tensor:
            kept[:] = kept or [original(x)]
            return kept[0].clone()

        return forward

    subject = make_subject(nn.Sequential(nn.Conv2d(4, 4, 3)).eval().requires_grad_(False), torch.randn(2, 4, 8, 8))
    bench = make_bench(subject, State(subject), Budget(60), goal="latency", allow=[])
    (layout,) = [one for one in catalogue(subject, bench.work) if one.name == "channels-last"]
    ledger = Ledger()
    for candidate in (layout, replace(planted("engine", replayed), engine=True)):
        ledger.keep(Kept(candidate, candidate.build(subject)))
        ledger.attempts.append(Attempt(candidate.name, "", "", "", "kept", ""))
        first_calls(bench, ledger.plan)
    credit(bench, ledger)
    assert ledger.names == ["channels-last", "engine"], ledger.attempts
    assert [shown.seen for shown in ledger.attempts[0].shown] == [True]


def test_what_changes_semantics_is_refused_unless_allowed_by_name() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval()
    x = torch.randn(8, 16)
    plan = optimize(model, x, budget="10s", only=["no-grad", "bf16-autocast"], trace=False)
    assert [attempt.outcome for attempt in plan.report.attempts] == ["refused", "refused"]
    assert "allow=['no-grad']" in plan.report.attempts[0].reason
    allowed = optimize(model, x, budget="30s", only=["no-grad"], allow=["no-grad"], trace=False)
    (attempt,) = allowed.report.attempts
    assert attempt.outcome in {"kept", "not faster"}
    assert attempt.numeric_class == "changes semantics"
    with pytest.raises(UsageError, match="to allow"):
        optimize(model, x, allow=["magic"])


def test_nothing_remains_of_an_interrupted_run(one_thread: None) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8)
    before = {name: (value.clone(), value.stride()) for name, value in model.state_dict().items()}
    expected = model(x)
    own = dict(vars(model))

    def interrupt(module: Any, original: Any) -> Any:
        calls = [0]

        def forward(x: torch.Tensor) -> torch.Tensor:
            calls[0] += 1
            if calls[0] > 20:
                raise KeyboardInterrupt
            return original(x)

        return forward

    threads = torch.get_num_threads()
    others = [f"threads-{usable_cores()}"] if usable_cores() > 1 else []
    with pytest.raises(KeyboardInterrupt):
        optimize(
            model,
            x,
            budget="60s",
            only=["channels-last", *others, "stop"],
            extra=[planted("stop", interrupt)],
            trace=False,
        )
    assert vars(model).keys() == own.keys()
    assert torch.equal(model(x), expected)
    assert torch.get_num_threads() == threads
    for name, (value, strides) in before.items():
        assert torch.equal(model.state_dict()[name], value)
        assert model.state_dict()[name].stride() == strides


def test_a_candidate_that_raises_or_takes_too_long_is_reported_and_the_budget_is_kept() -> None:
    def slow(module: Any, original: Any) -> Any:
        def forward(x: torch.Tensor) -> torch.Tensor:
            time.sleep(60)
            return original(x)

        return forward

    def broken(module: Any, original: Any) -> Any:
        raise RuntimeError("no such kernel")

    model = nn.Linear(16, 16).eval()
    began = time.monotonic()
    lines: list[str] = []
    plan = optimize(
        model,
        torch.randn(4, 16),
        budget=12,
        only=["broken", "slow"],
        extra=[planted("broken", broken), planted("slow", slow)],
        trace=False,
        progress=lines.append,
    )
    assert {a.name: a.outcome for a in plan.report.attempts} == {"broken": "failed", "slow": "out of budget"}
    assert time.monotonic() - began < 12 * 1.2
    assert any("slow" in line for line in lines)
    assert not plan


def test_what_anybody_has_with_one_line_is_tried_in_a_budget_that_it_does_not_fit_in() -> None:
    def slow(module: Any, original: Any) -> Any:
        time.sleep(5)
        return original

    late = planted("late", slow)
    plan = optimize(
        nn.Linear(16, 16).eval(),
        torch.randn(4, 16),
        budget=4,
        only=["late", "line"],
        extra=[late, replace(late, name="line", owed=True)],
        trace=False,
    )
    outcomes = {attempt.name: attempt.outcome for attempt in plan.report.attempts}
    assert outcomes == {"late": "out of budget", "line": "not faster"}
    assert any("anybody has with one line, is tried whatever the budget" in note for note in plan.report.notes)
    assert 5 < plan.report.seconds < 4 + 5 + 5
    owed = [one.name for one in catalogue(make_subject(nn.Linear(2, 2), torch.randn(1, 2)), WorkList()) if one.owed]
    assert owed == ["compile"]


class Biased(nn.Module):
    """Attention with a bias that is trained: some kernels cannot give its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.bias)


def test_an_attention_kernel_that_cannot_take_the_calls_does_not_apply(recwarn: pytest.WarningsRecorder) -> None:
    def build(subject: Subject) -> ForwardPatch:
        return ForwardPatch(subject.entry, with_backend("FLASH_ATTENTION"))

    flash = Candidate("flash", "attention", "whole", "flash attention", build)
    plan = optimize(Biased(), torch.randn(2, 2, 32, 16), budget="20s", only=["flash"], extra=[flash], trace=False)
    (attempt,) = plan.report.attempts
    assert attempt.outcome == "pruned"
    assert attempt.reason == "no kernel of the flash attention backend takes these calls"
    assert not [str(one.message) for one in recwarn if "kernel" in str(one.message)]


def test_a_program_too_slow_to_be_verified_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "LEARNING_S", 1.0)

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.5)
            return torch.tanh(x)

    began = time.monotonic()
    plan = optimize(Slow().eval(), torch.randn(4, 4), budget="4s", trace=False)
    assert time.monotonic() - began < 4 * 1.2
    assert not plan
    assert plan.report.attempts == []
    assert "nothing was tried" in plan.report.notes[-1]
    assert plan_sentence(plan.report)


def test_a_recording_that_takes_too_long_leaves_the_plan_unconfirmed(
    work_clock: WorkClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(*_: Any) -> str:
        time.sleep(60)
        return ""

    monkeypatch.setattr(course, "credit", endless)
    began = time.monotonic()
    good = planted("good", done_once)
    plan = optimize(Repeats(work_clock).eval(), torch.randn(64, 64), budget="20s", only=["good"], extra=[good])
    assert time.monotonic() - began < 20 * 1.2
    assert plan.report.winner == ["good"], plan.summary()
    assert "nothing was confirmed by a trace" in plan.report.notes[-1]


def test_budgets_are_read_and_kept() -> None:
    assert [seconds_of(text) for text in ("2m", "90s", "1.5h", 45, "30")] == [120, 90, 5400, 45, 30]
    for wrong in ("", "soon", "-3s", "0"):
        with pytest.raises(UsageError, match="no time to spend"):
            seconds_of(wrong)
    began = time.monotonic()
    with pytest.raises(OutOfTime), Budget(1).at_most(0.1):
        time.sleep(5)
    assert time.monotonic() - began < 2


def test_a_saved_plan_is_re_verified_or_refused_with_the_reason(tmp_path: Path) -> None:
    # It ends in rows: images would lie in memory in another way in calls that the plan hands over.
    tail = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *tail).eval().requires_grad_(False)
    x = torch.randn(2, 3, 8, 8)
    plan = optimize(model, x, budget="30s", only=["channels-last"], trace=False)
    path = plan.save(tmp_path / "plan.json")
    with pytest.raises(UsageError, match="exists"):
        plan.save(path)
    # Whether it is faster here is not the point: a plan that applies it is.
    saved = json.loads(path.read_text())
    saved["applied"] = ["channels-last"]
    path.write_text(json.dumps(saved))
    expected = model(x)
    loaded = load_plan(path, model, x)
    with loaded:
        assert model[0].weight.stride()[1] == 1
        assert torch.allclose(model(x), expected, atol=1e-5)
        assert loaded.counts()["channels-last"]["fast"] == 1
    assert torch.equal(model(x), expected)

    with pytest.raises(LanewiseError, match=r"other calls .*shape"):
        load_plan(path, model, torch.randn(3, 3, 8, 8))
    wider = nn.Sequential(nn.Conv2d(3, 9, 3), *tail).eval().requires_grad_(False)
    with pytest.raises(LanewiseError, match="another program"):
        load_plan(path, wider, x)
    for key, value, message in (
        ("machine", saved["machine"] | {"torch": "1.0"}, "torch was 1.0"),
        ("applied", ["magic"], "does not apply here"),
        ("schema", "lanewise.saved-plan/9", "another version"),
    ):
        path.write_text(json.dumps(saved | {key: value}))
        with pytest.raises(LanewiseError, match=message):
            load_plan(path, model, x)
    path.write_text("{}")
    with pytest.raises(InputError, match="no plan of lanewise"):
        load_plan(path, model, x)


@pytest.mark.usefixtures("two_threads")
def test_a_plan_is_kept_for_this_machine_and_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWISE_CACHE_DIR", str(tmp_path))
    model, x = nn.Sequential(nn.Linear(16, 16)).eval().requires_grad_(False), torch.randn(4, 16)
    options: dict[str, Any] = {"budget": "6s", "only": ["threads-1"], "trace": False, "cache": True}
    first = optimize(model, x, **options)
    assert len(list((tmp_path / "plans").iterdir())) == 1
    began = time.monotonic()
    again = optimize(model, x, **options)
    assert again.report == first.report
    assert time.monotonic() - began < first.report.seconds
    optimize(model, torch.randn(5, 16), **options)
    assert len(list((tmp_path / "plans").iterdir())) == 2, "other calls are another plan"


def test_a_kept_plan_that_ran_out_of_its_budget_is_found_anew_with_a_larger_one(tmp_path: Path) -> None:
    model, x = nn.Linear(16, 16).eval().requires_grad_(False), torch.randn(4, 16)
    plan = optimize(model, x, budget="0.01s", only=["bf16-autocast"], trace=False)
    first, *notes = plan.summary().splitlines()
    assert first == "Linear, inference: nothing was tried."
    assert notes == [f"note: {note}" for note in plan.report.notes]
    assert "nothing was tried" in notes[-1]
    path = tmp_path / "plan.json"
    keep_plan(plan, path, [])
    assert find_plan(path, model, x, seconds=0.01) is not None
    assert find_plan(path, model, x, seconds=60.0) is None
    tried = Attempt("threads-1", "threads", "process", "one thread", "not faster", "slower")
    plan.report = msgspec.structs.replace(plan.report, attempts=[tried])
    keep_plan(plan, path, [])
    assert find_plan(path, model, x, seconds=60.0) is not None, "all was tried: more time finds no more"


def test_a_plan_that_cannot_be_written_says_so_in_one_line(tmp_path: Path) -> None:
    plan = optimize(nn.Linear(16, 16).eval(), torch.randn(4, 16), budget="0.01s", trace=False)
    with pytest.raises(LanewiseError, match=r"cannot write .*nowhere.*: No such file"):
        plan.save(tmp_path / "nowhere" / "plan.json")


def test_a_plan_that_became_wrong_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.fix.candidates import layout

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval().requires_grad_(False)
    x = torch.randn(2, 3, 8, 8)
    path = optimize(model, x, budget="30s", only=["channels-last"], trace=False).save(tmp_path / "plan.json")
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"applied": ["channels-last"]}))
    monkeypatch.setattr(layout, "_outwards", lambda tensor: tensor.contiguous() * 1.01)
    with pytest.raises(LanewiseError, match="no longer gives the right results"):
        load_plan(path, model, x)


@pytest.mark.usefixtures("two_threads")
def test_the_report_reads_well_and_is_data() -> None:
    from rich.console import Console

    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).eval()
    plan = optimize(model, torch.randn(8, 16), budget="30s", only=["threads-1", "no-grad"], trace=False)
    report = plan.report
    data = json.loads(plan_json(report))
    assert data["schema"] == SCHEMA
    assert {attempt["name"] for attempt in data["attempts"]} == {"threads-1", "no-grad"}
    text = Console(width=110, record=True, file=open("/dev/null", "w"))
    text.print(render_plan(report, verbose=True))
    shown = text.export_text()
    assert plan_sentence(report) in " ".join(shown.split())
    assert "C1 values" in shown
    assert "| no-grad | refused |" in plan_markdown(report)
    assert "no-grad" in plan.summary()


def test_unknown_names_and_goals_are_usage_errors() -> None:
    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    with pytest.raises(UsageError, match="no goal"):
        optimize(model, x, goal="beauty")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no candidate called magic"):
        optimize(model, x, budget="5s", only=["magic"])


def test_a_report_prunes_what_it_has_no_finding_for() -> None:
    from types import SimpleNamespace

    report = SimpleNamespace(
        findings=[], checks=[SimpleNamespace(code="OPT104", status="clear")], regime=SimpleNamespace(step_us=100.0)
    )
    model = nn.Sequential(nn.Linear(16, 16)).eval()
    plan = optimize(model, torch.randn(4, 16), budget="5s", only=["no-grad"], allow=["no-grad"], report=report)
    (attempt,) = plan.report.attempts
    assert attempt.outcome == "pruned"
    assert "OPT104" in attempt.reason


def test_memory_as_the_goal() -> None:
    """Less memory at the same speed is kept for `memory`, and not for `latency`."""

    class Hoards(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = [x + number for number in range(8)]
            return torch.tanh(kept[0]) + 0 * kept[-1].sum() * 0

    def frugal(module: Any, original: Any) -> Any:
        def forward(x: torch.Tensor) -> torch.Tensor:
            for number in range(7, 0, -1):
                last = x + number
            return torch.tanh(x + 0) + 0 * last.sum() * 0

        return forward

    x = torch.randn(64, 256)
    plan = optimize(
        Hoards().eval(), x, goal="memory", budget="40s", only=["frugal"], extra=[planted("frugal", frugal)], trace=False
    )
    (attempt,) = plan.report.attempts
    assert attempt.peak_after < attempt.peak_before


@pytest.mark.parametrize(
    ("activation", "name"), [(nn.GELU(), "gelu"), (nn.GELU(approximate="tanh"), "gelu_tanh"), (nn.SiLU(), "silu")]
)
def test_an_mlp_is_recognised_by_what_it_computes(activation: nn.Module, name: str) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b, self.a, self.act = nn.Linear(32, 8), nn.Linear(8, 32), activation

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.act(self.a(x)))

    assert match_module(Odd()) is None, "declared in another order than it computes: first and second do not fit"
    plain = nn.Sequential(nn.Linear(8, 32), activation, nn.Linear(32, 8))
    match = match_module(plain)
    assert match is not None
    assert match.kernel == "mlp"
    assert match_module(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))) is None
    assert match_module(nn.LayerNorm(8)) is not None


class ChannelsFirst(nn.LayerNorm):
    """As in ConvNeXt: images have their channels before height and width."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ChannelsFirstOfImages(nn.LayerNorm):
    """Rows as they come, images turned around."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) if x.dim() < 4 else super().forward(x.transpose(1, -1)).transpose(1, -1)


class InSinglePrecision(nn.LayerNorm):
    """As in many a language model."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class Shifted(nn.RMSNorm):
    """As in Gemma: the weight is kept as its difference from one."""

    def forward(self, x: Any) -> Any:
        return nn.functional.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)


def test_a_norm_of_another_class_is_taken_for_what_it_computes() -> None:
    assert match_module(ChannelsFirst(8)) is None
    assert match_module(ChannelsFirstOfImages(8)) is None
    assert match_module(Shifted(8)) is None
    found = match_module(InSinglePrecision(8))
    assert found is not None
    assert found.kernel == "layer_norm"
    assert match_module(nn.LayerNorm(8, elementwise_affine=False)) is not None
    assert match_module(nn.LayerNorm((4, 8))) is None


def test_the_public_names() -> None:
    assert lanewise.optimize is optimize
    assert lanewise.load_plan is load_plan
    assert isinstance(planted("x", lambda m, o: o), Candidate)


def test_the_command_shows_a_saved_plan(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(16, 16)).eval()
    plan = optimize(model, torch.randn(4, 16), budget="5s", only=["no-grad"], trace=False)
    path, report = plan.save(tmp_path / "plan.json"), tmp_path / "report.json"
    report.write_text(plan_json(plan.report))
    for words, wanted in (([], "nothing is kept"), (["--json"], '"schema": "lanewise.plan/1"')):
        for file in (path, report):
            done = command("fix", *words, file)
            assert done.returncode == 0, done.stderr
            assert wanted in done.stdout
    path.write_text("[]")
    done = command("fix", path)
    assert done.returncode == 3
    assert "no plan of lanewise" in done.stderr


def test_wrong_gradients_of_inference_results_are_rejected() -> None:
    """Weights that want gradients, gradients on, evaluation mode: results may be differentiated."""
    from tests.fix.programs import wrong_gradient

    subject = make_subject(nn.Linear(32, 32).eval(), torch.randn(16, 32))
    assert subject.kind == "inference"
    bad = planted("bad", wrong_gradient)
    found = Correctness(subject, State(subject), seconds=2).check(bad, bad.build(subject))
    assert not found.passed
    assert "gradient" in found.reason


def test_a_function_keeps_its_plan_behind_call(work_clock: WorkClock) -> None:
    weight = torch.randn(32, 32)

    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            work_clock.spend(5_000.0)
            y = torch.tanh(x @ weight)
        return y

    def once(x: torch.Tensor) -> torch.Tensor:
        work_clock.spend(5_000.0)
        return torch.tanh(x @ weight)

    good = planted("good", lambda module, original: once)
    x = torch.randn(32, 32)
    plan = optimize(program, x, budget="40s", only=["good"], extra=[good], trace=False)
    assert plan.report.kind == "inference"
    assert plan.report.reference.startswith("double precision")
    assert plan.report.winner == ["good"], plan.summary()
    with plan:
        assert torch.allclose(plan.call(x), program(x))
        assert plan.counts()["good"] == {"fast": 1}
    plan.call(x)
    assert plan.counts()["good"] == {"fast": 1}


class Scales(nn.Module):
    """No parameters, and an argument that is no tensor."""

    def forward(self, x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return x * factor


class Lengths(nn.Module):
    """No tensors among its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, words: list[str]) -> torch.Tensor:
        return self.layer(torch.tensor([[float(len(word)) for word in words]]))


class Silent(nn.Module):
    """No results."""

    def forward(self, x: torch.Tensor) -> None:
        return None


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Scales(), torch.randn(4, 4)),
        (Scales(), (torch.randn(4), 3)),
        (Lengths(), (["a", "bb"],)),
        (Silent(), torch.randn(3)),
        (nn.Linear(4, 4), torch.randn(0, 4)),
        (Scales(), torch.tensor(1.0)),
        (nn.Linear(2, 2), torch.full((2, 2), float("nan"))),
        (nn.Embedding(4, 2), torch.tensor([1, 3])),
        (Scales(), torch.randn(4, dtype=torch.complex64)),
    ],
    ids=["no parameters", "a number", "no tensors", "no results", "no rows", "a scalar", "NaN", "indices", "complex"],
)
def test_unusual_programs_are_judged_like_others(one_thread: None, model: nn.Module, inputs: Any) -> None:
    same = planted("same", lambda module, original: original)
    plan = optimize(model.eval(), inputs, budget="40s", only=["same"], extra=[same], trace=False)
    (attempt,) = plan.report.attempts
    assert attempt.outcome in {"not faster", "kept"}, attempt.reason
    assert all(check.passed for check in attempt.checks)


@pytest.mark.parametrize(
    ("target", "inputs", "message"),
    [
        (3, torch.randn(2), "takes a module or a function, not int"),
        (nn.Linear(2, 2), [], "at least one real call"),
        (nn.Linear(2, 2, device="meta"), torch.randn(1, 2, device="meta"), "meta device"),
        (lambda x: x.to_dense(), torch.eye(2).to_sparse(), "layout sparse_coo"),
        (lambda x: x.to_sparse(), torch.eye(2), "layout sparse_coo"),
        (nn.Linear(2, 2), (torch.randn(1, 2), 5), "do not fit the call"),
    ],
)
def test_what_cannot_be_optimized_is_said_in_one_line(target: Any, inputs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        optimize(target, inputs, budget="10s", trace=False)


def test_what_the_program_raises_is_the_users_to_see() -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        optimize(nn.Linear(2, 2).eval(), torch.randn(1, 3), budget="10s", trace=False)
