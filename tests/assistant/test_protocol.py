"""`lanewise mcp` as an assistant sees it: the library's own client, over standard input and output."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks.diagnosis.assistant import DATA, Call, reached, recordings, talk

from lanewise.assistant.answers import QUESTIONS
from lanewise.assistant.pages import PAGE_BYTES

needs_mcp = pytest.mark.skipif(find_spec("mcp_types") is None, reason="needs the mcp library")


@needs_mcp
def test_tools_are_listed_and_answer_and_errors_are_a_line(tmp_path: Path) -> None:
    (tmp_path / "mnist.py").write_text("".join(f"line_{n}()\n" for n in range(1, 60)))
    trace = str(DATA / "twins" / "mnist-stacks.json.gz")

    async def conversation(client: Any, call: Call) -> None:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == list(QUESTIONS)
        assert all(tool.annotations.read_only_hint and "\n" not in tool.description for tool in tools)
        assert (await call("explain", trace=trace))[0].startswith("# Host-bound")
        assert "    20 line_20()" in (await call("source", trace=trace, finding="LAU106"))[0]
        for name, arguments, told in (
            ("explain", {"trace": "nowhere.json"}, "there is no such file"),
            ("explain", {}, "missing required field"),
            ("erase", {"trace": trace}, "no tool 'erase'"),
            ("explain", {"trace": trace, "page": 99}, "there is no page 99"),
        ):
            text, failed = await call(name, **arguments)
            assert failed
            assert told in text
            assert "\n" not in text
        # After all that it still answers.
        assert not (await call("findings", trace=trace))[1]

    talk(tmp_path, conversation)


@needs_mcp
def test_an_assistant_reaches_the_cause_in_three_calls() -> None:
    found = reached(recordings()[::6])
    assert [one for one in found if not one.right] == []
    assert max(one.bytes for one in found) <= PAGE_BYTES
    assert sorted(one.seconds for one in found)[len(found) // 2] < 1.0


@needs_mcp
@pytest.mark.slow
def test_nine_causes_of_ten_are_reached_in_three_calls() -> None:
    found = reached(recordings())
    missed = [one for one in found if not one.right]
    assert len(found) > 40
    assert len(missed) <= len(found) / 10, missed
    assert max(one.bytes for one in found) <= PAGE_BYTES
    assert sorted(one.seconds for one in found)[len(found) * 9 // 10] < 1.0


def test_without_the_library_it_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['mcp_types'] = None\n"
        "sys.argv = ['lanewise', 'mcp']\nfrom lanewise.cli.main import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'lanewise[mcp]'" in done.stderr


@needs_mcp
def test_it_ends_with_its_input_and_writes_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lanewise", "mcp"], input="", capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
