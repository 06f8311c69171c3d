"""A mistyped verb, table or column is answered with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from lanewise.cli.main import OTHER_WORDS, VERBS, cli
from lanewise.cli.suggest import nearest
from lanewise.errors import UsageError

TRACE = Path(__file__).resolve().parents[1] / "data" / "twins" / "item_loop-bad.json.gz"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("explan", "explain"), ("tabel", "table"), ("Diff", "diff"), ("record", "run"), ("flamegraph", "tree")],
)
def test_a_verb(typed: str, meant: str) -> None:
    result = CliRunner().invoke(cli, [typed, "trace.json"])
    assert result.exit_code == 2
    assert f"no command {typed!r}; did you mean: lanewise {meant}" in result.output


def test_what_is_like_nothing_gets_no_suggestion() -> None:
    result = CliRunner().invoke(cli, ["zzzzz"])
    assert result.exit_code == 2
    assert "did you mean" not in result.output


def test_other_words_lead_to_verbs_and_are_none() -> None:
    assert set(OTHER_WORDS.values()) <= VERBS.keys()
    assert not OTHER_WORDS.keys() & VERBS.keys()


def test_a_table() -> None:
    result = CliRunner().invoke(cli, ["table", str(TRACE), "kernel"])
    assert result.exit_code == 2
    assert "did you mean 'kernels'?" in result.output
    assert "did you mean" not in CliRunner().invoke(cli, ["table", str(TRACE), "xyzzy"]).output


def test_a_table_of_a_query() -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    result = CliRunner().invoke(cli, ["sql", str(TRACE), "select * from kernel"])
    assert isinstance(result.exception, UsageError)
    assert "Table with name kernel does not exist; the tables are events, lanes" in str(result.exception)
    assert "duckdb_" not in str(result.exception)


def test_the_nearest_is_empty_where_nothing_is_near() -> None:
    assert nearest("kernles", ["kernels", "api"]) == "kernels"
    assert nearest("", ["kernels"]) == ""
