"""Suggestions for source texts: what they find, what they leave alone, and that the result is a program."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

if find_spec("libcst") is None:
    pytest.skip("edits sources", allow_module_level=True)

from lanewise.edit.rewrite import EDITS, rewrite, unified_diff
from lanewise.errors import InputError, UsageError
from tests.support.command import lanewise, lanewise_in_bytes

BAD = Path(__file__).parents[2] / "examples" / "bad"


HEAD = (
    "import torch\nfrom torch import optim\nfrom torch.utils.data import DataLoader\nimport torch.nn.functional as F\n"
)


SGD = "import torch\n\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)\n"


def edited(source: str, name: str) -> str:
    """The text after one edit, behind the usual imports."""
    after = rewrite(HEAD + dedent(source), only=[name]).after
    assert after.startswith(HEAD)
    return after.removeprefix(HEAD).strip()


CASES: dict[str, tuple[str, str, str]] = {
    "zero_grad is told to fill": (
        "zero-grad",
        "optimizer.zero_grad(set_to_none=False)",
        "optimizer.zero_grad()",
    ),
    "an optimizer loop": (
        "optimizer-flags",
        "o = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)",
        "o = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)",
    ),
    "flags that come from a mapping": (
        "optimizer-flags",
        "o = optim.SGD(p, **options)",
        'o = optim.SGD(p, **{**options, "foreach": None, "fused": True})',
    ),
    "a loader without workers": (
        "loader",
        "loader = DataLoader(data, batch_size=8)",
        "loader = DataLoader(data, batch_size=8, num_workers=min(8, torch.get_num_threads()), persistent_workers=True, "
        "pin_memory=torch.cuda.is_available())",
    ),
    "batches of a loader that are waited for": (
        "loader",
        "loader = DataLoader(data, num_workers=4)\n"
        "for at, (x, y) in enumerate(loader):\n"
        "    f(x.to(device), y.cuda(), z.to(device))",
        "loader = DataLoader(data, num_workers=4, pin_memory=torch.cuda.is_available())\n"
        "for at, (x, y) in enumerate(loader):\n"
        "    f(x.to(device, non_blocking=True), y.cuda(non_blocking=True), z.to(device))",
    ),
    "a value read for nothing": ("unused-wait", "x.sum().item()\ny = 1", "y = 1"),
    "a value read under a condition": (
        "unused-wait",
        "if not args.good:\n    x.sum().item()\ny = 1",
        "y = 1",
    ),
    "a value read under a condition that does something": (
        "unused-wait",
        "if log():\n    x.sum().item()\ny = 1",
        "if log():\n    pass\ny = 1",
    ),
    "a sum over a loop": (
        "item-in-loop",
        "for loss in losses:\n    total += loss.item()",
        "total += (losses if isinstance(losses, torch.Tensor) else torch.stack(tuple(losses))).sum().item()",
    ),
    "a sum beside other work": (
        "item-in-loop",
        "for x in data:\n    loss = f(x)\n    loss.backward()\n    total += loss.item()",
        "for x in data:\n    loss = f(x)\n    loss.backward()\n    total += loss.detach()\n"
        "if isinstance(total, torch.Tensor):\n    total = total.item()",
    ),
    "a sum that is all a function gives back": (
        "item-in-loop",
        """
        def f(losses):
            total = 0.0
            for loss in losses:
                total += loss.item()
            return total
        """,
        """
        def f(losses):
            return (losses if isinstance(losses, torch.Tensor) else torch.stack(tuple(losses))).sum()
        """,
    ),
    "a model that is moved there and back": (
        "moved-back",
        """
        def main(model, x):
            def step():
                model.to("cuda")
                y = model(x)
                model.to("cpu")
                return y
        """,
        """
        def main(model, x):
            model.to("cuda")
            def step():
                y = model(x)
                return y
        """,
    ),
    "a model that is moved to where the call says": (
        "moved-back",
        """
        def main(model, x):
            def step(device):
                model.to(device)
                y = model(x)
                model.to("cpu")
                return y
        """,
        """
        def main(model, x):
            def step(device):
                model.to(device)
                y = model(x)
                return y
        """,
    ),
    "a repeated chain inside of a function": (
        "compile-region",
        """
        def main(x, w):
            def step(y):
                for _ in range(8):
                    y = torch.tanh((y * 2) @ w)
                return y
        """,
        """
        def main(x, w):
            @torch.compile
            def step(y):
                for _ in range(8):
                    y = torch.tanh((y * 2) @ w)
                return y
        """,
    ),
    "small copies": (
        "small-copies",
        "rows = torch.stack([part.to(device) for part in parts])",
        "rows = torch.stack(list(parts)).to(device)",
    ),
    "a partition by a mask": (
        "mask-partition",
        "y = torch.cat([x[keep], x[~keep]])",
        "y = x[torch.argsort(~keep, stable=True)]",
    ),
    "casts around relu": ("cast-around", "y = torch.relu(h.float()).to(x.dtype)", "y = torch.relu(h)"),
    "full precision": (
        "matmul-precision",
        'torch.set_float32_matmul_precision("highest")',
        'torch.set_float32_matmul_precision("high")',
    ),
    "static shapes": ("static-compile", "f = torch.compile(g, dynamic=False)", "f = torch.compile(g)"),
    "attention in three lines": (
        "attention",
        """
        def f(q, k, v):
            scores = q @ k.transpose(-2, -1) * scale
            weights = scores.softmax(dim=-1)
            return weights @ v
        """,
        """
        def f(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, scale=scale)
        """,
    ),
    "attention with a mask": (
        "attention",
        """
        def f(q, k, v, hidden):
            s = torch.matmul(q, k.transpose(-1, -2)) / 8
            s = s.masked_fill(hidden, float("-inf"))
            p = F.softmax(s, dim=-1)
            o = torch.matmul(p, v)
            return o
        """,
        """
        def f(q, k, v, hidden):
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden, scale=1 / (8))
            return o
        """,
    ),
    "inference that records": (
        "no-grad",
        "def evaluate(model, x):\n    model.eval()\n    return model(x)",
        "@torch.inference_mode()\ndef evaluate(model, x):\n    model.eval()\n    return model(x)",
    ),
    "a chain of small operations": (
        "compile-region",
        "def f(x, w):\n    return torch.sin(x) * w + 1",
        "@torch.compile\ndef f(x, w):\n    return torch.sin(x) * w + 1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_found_and_changed(case: str) -> None:
    name, before, after = CASES[case]
    assert edited(before, name) == dedent(after).strip()
    (suggestion, *_) = rewrite(HEAD + dedent(before), only=[name]).suggestions
    assert suggestion.name == name
    assert suggestion.answers
    assert edited(dedent(after), name) == dedent(after).strip(), "what is good already is left alone"


LEFT_ALONE: dict[str, tuple[str, str]] = {
    "a sum of something else": (
        "item-in-loop",
        "def f(x):\n    total = 0.0\n    total += x.sum().item()\n    return total",
    ),
    "a cat that is made once": ("growing-cat", "keys = torch.cat([keys, token], dim=1)"),
    "a cat of two others": ("growing-cat", "for _ in data:\n    keys = torch.cat([old, token], dim=1)"),
    "a call whose result is used": (
        "background-call",
        "def log(x):\n    print(x)\n    return x\nfor x in data:\n    log(x)",
    ),
    "a call that touches tensors": (
        "background-call",
        "def log(x):\n    print(torch.sum(x))\nfor x in data:\n    log(x)",
    ),
    "a call that is made once": ("background-call", "def log(x):\n    print(x)\nlog(3)"),
    "a product inside of a function": (
        "compile-region",
        "def main(x, w):\n    def step():\n        return torch.relu(x @ w) * 2 + 1",
    ),
    "attention whose weights are returned": (
        "attention",
        "def f(q, k, v):\n    w = (q @ k.transpose(-2, -1)).softmax(-1)\n    return w @ v, w",
    ),
    "attention with dropout on its weights": (
        "attention",
        "def f(q, k, v):\n    w = (q @ k.mT).softmax(-1)\n    w = dropout(w)\n    return w @ v",
    ),
    "softmax over another dimension": (
        "attention",
        "def f(q, k, v):\n    w = (q @ k.mT).softmax(0)\n    return w @ v",
    ),
    "a value that is used": ("unused-wait", "loss_value = loss.item()"),
    "a wait that a clock needs": (
        "unused-wait",
        "def bench():\n    for _ in range(3):\n        torch.cuda.synchronize()\n        t = time.perf_counter()",
    ),
    "a running sum that is printed": (
        "item-in-loop",
        "for x in data:\n    total += x.item()\n    print(total)",
    ),
    "another library's Adam": ("optimizer-flags", "o = bitsandbytes.Adam(p)"),
    "an optimizer of another library": ("optimizer-flags", "o = keras.optimizers.Adam(lr=1e-3)"),
    "a module moved for good": ("unused-wait", "model.cpu()"),
    "arithmetic of plain numbers": (
        "compile-region",
        "def rate(step, warm, top):\n    return top * math.cos(step / warm) * 0.5 + 0.5",
    ),
    "copies to where each part says": ("small-copies", "y = torch.stack([p.to(p) for p in parts])"),
    "another mask": ("mask-partition", "y = torch.cat([x[a], x[~b]])"),
    "a cast around something that rounds": ("cast-around", "y = torch.exp(h.float()).to(x.dtype)"),
    "a function that trains": (
        "no-grad",
        "def train(model, x):\n    model.eval()\n    model(x).sum().backward()",
    ),
    "a function that prints": ("compile-region", "def f(x):\n    print(x)\n    return torch.sin(x) * 2 + 1"),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_it_is_left_alone(case: str) -> None:
    name, source = LEFT_ALONE[case]
    assert edited(source, name) == source.strip()


def test_all_bad_programs_still_are_programs_and_most_get_a_suggestion() -> None:
    files = sorted(BAD.glob("*.py"))
    changed: list[str] = []
    for file in files:
        result = rewrite(file.read_text())
        compile(result.after, file.name, "exec")
        again = rewrite(result.after)
        assert not again.changed, f"{file.name}: applied twice is applied once\n{unified_diff(again, file.name)}"
        if result.changed:
            changed.append(file.stem)
    assert len(files) - len(changed) <= 2, changed


def test_safe_only_leaves_out_what_may_change_results() -> None:
    source = f"{SGD}for loss in losses:\n    total += loss.item()\noptimizer.zero_grad(set_to_none=False)\n"
    assert {one.name for one in rewrite(source).suggestions} == {"item-in-loop", "zero-grad"}
    assert [one.name for one in rewrite(source, safe_only=True).suggestions] == ["zero-grad"]


def test_channels_last_is_not_safe_beside_dropout_which_draws_in_the_order_of_memory() -> None:
    source = (
        "import torch\n\nmodel = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3){})\ny = model(torch.randn(2, 3, 8, 8))\n"
    )
    for more, safe in (("", True), (", torch.nn.Dropout()", False)):
        assert [one.safe for one in rewrite(source.format(more), only=["channels-last"]).suggestions] == [safe]


LOADER = "import torch\nloader = torch.utils.data.DataLoader(data{})"
SUM = "for x in data:\n    loss = f(x)\n    total += loss.item()\n{}"
SERVES = "model.eval()\n\ndef answer(x):\n    return model(x)\n{}"


@pytest.mark.parametrize(
    ("name", "source", "other"),
    [
        ("loader", LOADER, ", **settings"),
        ("item-in-loop", SUM, "    print(loss.item())\n"),
        ("no-grad", SERVES, "\nmodel(y).sum().backward()\n"),
        ("no-grad", SERVES, "\ntorch.set_grad_enabled(False)\n"),
        ("no-grad", SERVES.replace("model.eval", "other.eval"), ""),
    ],
    ids=["a mapping may hold the same", "it waits anyway", "it trains", "it is off already", "another model"],
)
def test_nothing_is_suggested_where_it_would_break_or_not_help(name: str, source: str, other: str) -> None:
    if other:
        assert [one.name for one in rewrite(source.format(""), only=[name]).suggestions] == [name]
    assert not rewrite(source.format(other), only=[name]).changed


def test_a_script_that_only_infers_gets_its_function_decorated() -> None:
    for put in ("model.eval()", "model = load().eval()"):
        source = f"import torch\n\n{put}\n\n\ndef answer(x):\n    return model(x)\n\n\ndef other(x):\n    return x\n"
        after = rewrite(source, only=["no-grad"]).after
        assert after == source.replace("def answer", "@torch.inference_mode()\ndef answer")


def test_a_file_that_may_not_be_written_is_not_run_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.edit import source_text as text
    from lanewise.errors import LanewiseError

    monkeypatch.setattr(text.os, "access", lambda path, mode: False)
    with pytest.raises(LanewiseError, match=r"cannot write a\.py: Permission denied"):
        text.check_writable(Path("a.py"))


def test_what_is_safe_is_suggested_beside_what_is_not() -> None:
    source = "import torch\n\nfor x in torch.ones(3, 2):\n    x.sum().item()\n    torch.cuda.synchronize()\n"
    assert [one.safe for one in rewrite(source).suggestions] == [True, False]
    safe = rewrite(source, safe_only=True)
    assert [one.line for one in safe.suggestions] == [4]
    assert safe.after == "import torch\n\nfor x in torch.ones(3, 2):\n    torch.cuda.synchronize()\n"


def test_what_an_edit_uses_is_imported() -> None:
    source = '"""A program."""\n\nfrom torch.utils.data import DataLoader\n\nloader = DataLoader(data)\n'
    after = rewrite(source).after
    assert after.startswith('"""A program."""\n')
    assert "import torch\n" in after
    assert "import torch" not in rewrite("import torch\n\nx.item()\n").after.replace("import torch\n", "", 1)


def test_findings_choose_the_edits() -> None:
    source = "import torch\n\noptimizer.zero_grad(set_to_none=False)\nf = torch.compile(g, dynamic=False)\n"
    assert [one.name for one in rewrite(source, findings=["MEM105"]).suggestions] == ["zero-grad"]
    assert not rewrite(source, findings=[]).changed


def test_every_answer_is_a_rule_that_exists_and_the_first_one_says_where_the_edit_stands() -> None:
    from lanewise.diagnose.registry import builtin_rules

    families = {rule.code: rule.check.__module__.split(".")[-2] for rule in builtin_rules()}
    for module, name in EDITS.values():
        answers = getattr(import_module(f"lanewise.edit.suggestions.{module}"), name).answers
        assert set(answers) <= families.keys()
        assert module.split(".")[0] == families[answers[0]], module


def test_errors_are_one_line() -> None:
    with pytest.raises(InputError, match="no Python"):
        rewrite("def (:")
    with pytest.raises(UsageError, match="no edit called magic"):
        rewrite("x = 1", only=["magic"])


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_diff_and_changes_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{SGD}optimizer.zero_grad(set_to_none=False)\nfor loss in losses:\n    total += loss.item()\n")
    before = script.read_text()
    done = lanewise("fix", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "-optimizer.zero_grad(set_to_none=False)\n+optimizer.zero_grad()\n" in done.stdout
    assert "train.py:4: zero-grad" in done.stderr
    assert "1 more edit may change results" in done.stderr
    assert "item" not in done.stdout.split("@@")[-1].replace(" for loss in losses", "").split("+")[1]
    assert script.read_text() == before
    unsafe = lanewise("fix", "--unsafe", "train.py", cwd=tmp_path)
    assert "torch.stack(tuple(losses))).sum().item()" in unsafe.stdout
    applied = lanewise("fix", "--apply", "--no-proof", "train.py", cwd=tmp_path)
    assert applied.returncode == 0
    assert script.read_text().startswith(f"{SGD}optimizer.zero_grad()\n")
    assert "nothing to suggest" in lanewise("fix", "train.py", cwd=tmp_path).stderr


def test_options_behind_the_script_are_not_lost_silently(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = torch.ones(3)\nx.sum().item()\n")
    done = lanewise("fix", "a.py", "--apply", "--runs=2", cwd=tmp_path)
    assert "--apply --runs=2 went to the program" in done.stderr
    assert "nothing is written yet; --apply" in lanewise("fix", "a.py", "--epochs", 3, cwd=tmp_path).stderr


def test_the_diff_can_be_applied_with_patch(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    source = "import torch\n\n\ndef f(x, w):\n    return torch.sin(x) * w + 1\n\n\nf(torch.ones(3), torch.ones(3))"
    script.write_text(source)
    diff = lanewise("fix", "a.py", cwd=tmp_path).stdout
    assert subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path).returncode == 0
    assert script.read_text() == rewrite(source).after


def test_the_diff_is_in_the_bytes_and_under_the_path_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    files = {
        "sub/a.py": "# coding: latin-1\nimport torch\nx = torch.ones(1)\nx.sum().item()\nname = 'caf\u00e9'\n".encode(
            "latin-1"
        ),
        "sub/mark.py": "\ufeffimport torch\r\nx = torch.ones(1)\nx.sum().item()\n".encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link.py").symlink_to("sub/mark.py")
    for given, written in (("sub/a.py", "sub/a.py"), ("link.py", "sub/mark.py")):
        diff = lanewise_in_bytes("fix", given, cwd=tmp_path).stdout
        assert subprocess.run(["git", "apply", "-"], input=diff, cwd=tmp_path, check=False).returncode == 0
        assert (tmp_path / written).read_bytes() == files[written].replace(b"x.sum().item()\n", b"")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "\ufeffimport torch\r\nx = torch.ones(1)\r\nx.sum().item()\r\ny = 1".encode(),
            "\ufeffimport torch\r\nx = torch.ones(1)\r\ny = 1".encode(),
        ),
        (
            "# coding: latin-1\nimport torch\n\f\nx = torch.ones(1)\nx.sum().item()\ny = 'é'\n".encode("latin-1"),
            "# coding: latin-1\nimport torch\n\f\nx = torch.ones(1)\ny = 'é'\n".encode("latin-1"),
        ),
    ],
    ids=["byte order mark and line ends", "another encoding and a form feed"],
)
def test_what_the_file_was_written_in_stays(tmp_path: Path, before: bytes, after: bytes) -> None:
    script = tmp_path / "a.py"
    script.write_bytes(before)
    diff = lanewise_in_bytes("fix", "a.py", cwd=tmp_path).stdout
    assert lanewise("fix", "--apply", "--no-proof", "a.py", cwd=tmp_path).returncode == 0
    assert script.read_bytes() == after
    assert diff.count(b"\n-") == 1, "one line goes"


def test_where_nothing_can_be_written_one_line_says_so(tmp_path: Path) -> None:
    from lanewise.edit.source_text import write_source
    from lanewise.errors import LanewiseError

    with pytest.raises(LanewiseError, match=r"cannot write .*nowhere.a\.py: No such file"):
        write_source(tmp_path / "nowhere" / "a.py", "", "utf-8")


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (:")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.ipynb").write_text('{"cells": []}')
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff\xfe'\n" * 3)
    (tmp_path / "coding.py").write_text("# coding: magic\n")
    for words, code, message in (
        (["fix"], 2, "what to fix?"),
        (["fix", "missing.py"], 3, "cannot read missing.py"),
        (["fix", "broken.py"], 3, "broken.py: it is no Python that can be read: line 1: invalid syntax"),
        (["fix", "a.ipynb"], 3, "a.ipynb is a notebook"),
        (["fix", "-"], 2, "not from standard input"),
        (["fix", "--only", "magic", "broken.py"], 2, "no edit called magic"),
        (["fix", "folder"], 3, "folder has no Python file in it"),
        (["fix", "bytes.py"], 3, "cannot read bytes.py: "),
        (["fix", "coding.py"], 3, "unknown encoding"),
    ):
        done = lanewise(*words, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_without_libcst_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    hidden = "import sys; sys.modules['libcst'] = None; sys.argv = ['lanewise', 'fix', 'a.py']; "
    code = hidden + "from lanewise.cli.main import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'lanewise[fix]'" in done.stderr


def test_what_a_program_prints_is_only_held_against_the_edits_if_it_always_prints_that() -> None:

    from lanewise.edit.prove import Proof

    nothing: Any = None
    assert Proof(nothing, True, "").printed == "it prints the same"
    assert Proof(nothing, False, "'a' became 'b'").printed == "it prints something else: 'a' became 'b'"
    assert "without the edits too" in Proof(nothing, False, "", steady=False).printed


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("Traceback ...\n  x\nValueError: boom\nlanewise: trace in a.json.gz\n", "ValueError: boom"),
        ("torch._inductor.exc.InductorError: no compiler\n\nSet TORCHDYNAMO_VERBOSE=1 for more\n",
         "torch._inductor.exc.InductorError: no compiler"),
        ("usage: a.py\na.py: error: what?\n", "a.py: error: what?"),
        ("lanewise: trace in a.json.gz\n", "no message"),
    ],
)  # fmt: skip
def test_the_last_words_of_a_program_are_its_exception(errors: str, words: str) -> None:
    from lanewise.edit.prove import last_words

    assert last_words(errors) == words


@pytest.mark.parametrize(
    ("said", "words", "quick"),
    [
        ("the program ended after 15 steps, before recording began; with --quick it begins after the fifth",
         "the program ended after 15 steps, before recording began", True),
        ("no step was found; name the function that makes one (--step-on FN), or use --whole",
         "no step was found", False),
    ],
)  # fmt: skip
def test_a_program_of_few_steps_is_recorded_from_the_first_ones(
    said: str, words: str, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lanewise.edit import prove as proving
    from lanewise.edit.source_text import Source
    from lanewise.errors import LanewiseError

    script, told, ran = tmp_path / "a.py", list[str](), list[bool]()
    script.write_text("x = 1\n")

    def run(line: list[str], **_: Any) -> Any:
        ran.append("--quick" in line)
        folder, name = Path(line[line.index("-o") + 1]), line[line.index("--name") + 1]
        if ran[-1]:
            folder.mkdir(exist_ok=True)
            (folder / f"{name}.json.gz").touch()
        return SimpleNamespace(returncode=0, stdout="", stderr=f"lanewise: nothing was recorded: {said}\n")

    monkeypatch.setattr(proving.subprocess, "run", run)
    monkeypatch.setattr(proving, "diff", lambda *_, **__: None)
    edited = Source("x = 2\n", "utf-8")
    if quick:
        assert proving.prove(script, edited, [], tmp_path, runs=2, tell=told.append).same_output
        assert ran == [False, True, True, True, True]
        assert any(words in line and "--quick" not in line for line in told)
    else:
        with pytest.raises(LanewiseError, match=f"of the program: {words}$"):
            proving.prove(script, edited, [], tmp_path, runs=2, tell=told.append)


@pytest.mark.parametrize(
    ("verdicts", "runs"), [(["faster"], 4), (["not enough samples", "faster"], 8), (["not enough samples"] * 2, 8)]
)
def test_runs_that_cannot_tell_which_is_faster_are_followed_by_more(
    verdicts: list[str], runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lanewise.edit import prove as proving
    from lanewise.edit.source_text import Source

    script, told, left = tmp_path / "a.py", list[str](), list(verdicts)
    script.write_text("x = 1\n")

    def compared(*_: Any, **__: Any) -> Any:
        step = SimpleNamespace(verdict=left.pop(0))
        return SimpleNamespace(differences=[SimpleNamespace(step=step)], base=SimpleNamespace(runs=runs))

    monkeypatch.setattr(proving, "record_once", lambda *_, **__: "")
    monkeypatch.setattr(proving, "diff", compared)
    proof = proving.prove(script, Source("x = 2\n", "utf-8"), [], tmp_path, runs=4, most=8, tell=told.append)
    assert sum("recording before" in line for line in told) == sum("recording after" in line for line in told) == runs
    assert (f"after {runs} runs" in proof.unsure) == (verdicts[-1] != "faster")
    assert not left


def test_recordings_that_cannot_be_compared_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lanewise.edit import prove as proving
    from lanewise.edit.source_text import Source
    from lanewise.errors import LanewiseError

    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError("before and after are not comparable: another card. Add --anyway to compare them all the same")

    script = tmp_path / "a.py"
    script.write_text("x = 1\n")
    monkeypatch.setattr(proving, "record_once", lambda *_, **__: "")
    monkeypatch.setattr(proving, "diff", refuse)
    with pytest.raises(LanewiseError, match=r"nothing of each other: before .* another card$") as caught:
        proving.prove(script, Source("x = 2\n", "utf-8"), [], tmp_path, runs=1, tell=lambda _: None)
    assert not isinstance(caught.value, UsageError)


def test_a_tensor_that_grows_is_given_room() -> None:
    source = """
    import torch

    def grow(held, parts):
        for part in parts:
            held = torch.cat([held, part], dim=1)
        return held
    """
    result = rewrite(dedent(source), only=["growing-cat"])
    assert [one.answers for one in result.suggestions] == [("MEM107", "LAU104")]
    assert "held = append_along(held, part, 1)" in result.after


def test_attention_to_what_grows_does_not_plan_for_every_length() -> None:
    grows = "import torch\n\nfor part in parts:\n    keys = torch.cat([keys, part], dim=1)\n"
    assert "enable_cudnn_sdp" not in rewrite(grows, only=["growing-cat"]).after
    attends = f"{grows}    y = F.scaled_dot_product_attention(q, keys, keys)\n"
    after = rewrite(attends, only=["growing-cat"]).after
    assert "torch.backends.cuda.enable_cudnn_sdp(False)" in after
    compile(after, "attends", "exec")


def test_a_call_that_only_writes_is_made_by_another_thread_in_order() -> None:
    source = """
    import torch

    def log(value):
        out.write(value)

    def main(values):
        for value in values:
            log(value)
    """
    result = rewrite(dedent(source), only=["background-call"])
    assert [one.safe for one in result.suggestions] == [False]
    written: list[int] = []
    names: dict[str, Any] = {"out": SimpleNamespace(write=written.append)}
    exec(compile(result.after.replace("import torch\n", ""), "logged", "exec"), names)  # it needs none
    names["main"](range(50))
    names["_finish_calls"]()
    assert written == list(range(50))


def test_the_command_writes_a_page_and_overwrites_none(tmp_path: Path) -> None:
    from lanewise.errors import MissingDependencyError
    from lanewise.show.page.html import bundle

    try:
        bundle()
    except MissingDependencyError:
        pytest.skip("this installation was made without the page")
    (tmp_path / "a.py").write_text(f"{SGD}optimizer.zero_grad(set_to_none=False)\n")
    done = lanewise("fix", "-o", "a.html", "a.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "zero_grad(set_to_none=False)" in page
    assert "<script" not in page
    again = lanewise("fix", "-o", "a.html", "a.py", cwd=tmp_path)
    assert again.returncode == 2
    assert "add --force" in again.stderr
    assert "Traceback" not in again.stderr
