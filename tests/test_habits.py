"""What CONTRIBUTING and the workflows promise: one file is `make check` and CI, commands that they name exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

from tests.support.corpus import REPOSITORY

WORKFLOWS = {path.stem: path.read_text() for path in (REPOSITORY / ".github" / "workflows").glob("*.yml")}
MAKEFILE = (REPOSITORY / "Makefile").read_text()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))


def test_make_check_is_what_ci_runs() -> None:
    assert re.search(r"^check:.*\n\t.*\.ci/run$", MAKEFILE, re.M)
    assert "- run: .ci/run" in WORKFLOWS["ci"]
    runs = (REPOSITORY / ".ci" / "run").read_text()
    for target in ("lint", "types", "layers", "docs-check", "page", "test"):
        assert re.search(rf"^\(?make .*\b{target}\b", runs, re.M), target


def test_targets_that_are_named_exist() -> None:
    texts = [*WORKFLOWS.values(), (REPOSITORY / ".ci" / "run").read_text()]
    texts += [(REPOSITORY / name).read_text() for name in ("CONTRIBUTING.md", "docs/internals/releasing.md")]
    named = {one for text in texts for one in re.findall(r"(?<![\w-])make ([a-z][a-z-]+)", text)}
    assert named <= targets() | {"sure"}


def test_planted_kernels_come_first_at_night() -> None:
    paths = re.findall(r"tests/\S+\.py", WORKFLOWS["nightly"])
    assert paths
    assert all((REPOSITORY / path).exists() for path in paths)
    assert WORKFLOWS["nightly"].index("planted:") < WORKFLOWS["nightly"].index("slow:")


def test_commit_hooks_run_what_make_installed() -> None:
    text = (REPOSITORY / ".pre-commit-config.yaml").read_text()
    entries = re.findall(r"entry: (\S+)", text)
    assert entries
    assert all(entry.startswith(".venv/bin/") for entry in entries)


def test_a_release_is_the_changelogs_section() -> None:
    spec = importlib.util.spec_from_file_location("release_notes", REPOSITORY / "scripts" / "release_notes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0, 2027-01-02\n\n- two\n- lines\n\n## 0.1.0\n\n- one\n"
    assert module.notes(text, "0.2.0") == "- two\n- lines"
    assert module.notes(text, "0.1.0") == "- one"
    assert module.notes(text, "0.2") == ""


def test_a_release_without_notes_is_refused() -> None:
    script = REPOSITORY / "scripts" / "release_notes.py"
    done = subprocess.run([sys.executable, str(script), "v99.0.0"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "CHANGELOG.md says nothing of v99.0.0" in done.stderr
