"""Which profilers a process has had is known, whoever attached them. Each case is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("asks torch", allow_module_level=True)

pytestmark = pytest.mark.slow

ASK = "from lanewise.capture.profiling.history import profilers_so_far; print(profilers_so_far())"


def answer(code: str, **environment: str) -> tuple[str, str]:
    """The last line printed, and what was written to standard error besides Kineto's own lines."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{ASK}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=os.environ | environment,
    )
    errors = [line for line in done.stderr.splitlines() if not line.startswith("USDT")]
    return done.stdout.splitlines()[-1], "\n".join(errors)


SESSION = "import torch\nwith torch.profiler.profile() as profile: torch.ones(3) + 1\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", "[]"),
        ("import torch; torch.ones(3) + 1; torch.profiler.profile()", "[]"),
        (SESSION, "['torch.profiler']"),
        (SESSION + "del profile; import gc; gc.collect()", "['torch.profiler']"),
        (
            "import torch\nfrom lanewise.capture.profiling.profiler import Flags, Session\n"
            "s = Session(Flags(), 'cpu'); s.prepare(); s.start(); s.stop()",
            '["lanewise\'s recorder"]',
        ),
    ],
    ids=["without torch", "never entered", "still there", "gone", "ours"],
)
def test_profilers_are_known(code: str, expected: str) -> None:
    assert answer(code) == (expected, "")


def test_where_torch_hides_its_warnings_nothing_is_made_up() -> None:
    assert answer("import torch", TORCH_CPP_LOG_LEVEL="ERROR") == ("[]", "")
    assert answer("import os, torch; os.close(2)")[0] == "[]"
