"""SYN102: results whose size depends on the data."""

from __future__ import annotations

import pytest

from lanewise.trace.model import Trace
from lanewise.trace.schema import Kind
from tests.diagnose.outcomes import cleared, found, skipped, title
from tests.support.builder import TraceBuilder


def program(name: str = "aten::nonzero", *, calls: int = 1, every: int = 1, waits: bool = True) -> Trace:
    b = TraceBuilder()
    for step in range(5):
        with b.step():
            with b.op("aten::add"):
                b.launch("add", duration=50)
            for _ in range(calls if step % every == 0 else 0):
                with b.op("aten::index"), b.op(name):
                    b.launch("DeviceReduceKernel", duration=3)
                    if waits:
                        b.copy("DtoH", size=8, duration=1)
                        b.synchronize()
                    b.launch("write_indices", duration=3)
    return b.build()


@pytest.mark.parametrize("name", ["aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::repeat_interleave"])
def test_names_the_operator_and_its_cost(name: str) -> None:
    finding = found("SYN102", program(name, calls=2))
    assert title("SYN102", finding).startswith(
        f"2 calls per step to operators whose result size depends on the data ({name}"
    )
    assert finding.gain_ns > 0
    assert finding.location is not None
    assert finding.location.operators == ["aten::index", name]


def test_the_indexing_around_goes_away_with_it() -> None:
    plain, trace = found("SYN102", program("aten::masked_select")), program()
    index = [int(e) for e in trace.of(Kind.OPERATOR) if trace.name_of(int(e)) == "aten::index"]
    assert plain.gain_ns == pytest.approx(found("SYN102", trace).gain_ns)
    assert 0 < plain.gain_ns <= trace.duration[index[-1]] + 10_000


def test_a_known_size_does_not_wait() -> None:
    assert cleared("SYN102", program("aten::repeat_interleave", waits=False))
    assert cleared("SYN102", program("aten::nonzero_static"))


def test_fires_from_one_per_step() -> None:
    assert cleared("SYN102", program(every=2))
    assert found("SYN102", program())


def test_readbacks_of_values_are_another_rules() -> None:
    assert cleared("SYN102", program("aten::_local_scalar_dense"))


def test_without_device_work_it_does_not_apply() -> None:
    b = TraceBuilder()
    with b.step(), b.op("aten::nonzero"):
        pass
    assert skipped("SYN102", b.build())
