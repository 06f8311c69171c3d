"""The built-in rules, by name: an explicit list, and entry points for everyone else's."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points

from lanewise.diagnose.rule import Rule
from lanewise.errors import UsageError

__all__ = ["ENTRY_POINT_GROUP", "builtin_rules", "find_rule", "installed_rules", "third_party_rules"]

ENTRY_POINT_GROUP = "lanewise.rules"

# family -> files of that family, one rule each; the order is that of the catalogue.
_FILES: dict[str, tuple[str, ...]] = {
    "validity": (
        "cold_first_step",
        "lazy_loading",
        "profiler_buffer_request",
        "unscheduled_profile",
        "profiler_distortion",
        "compile_in_window",
        "kernel_time_variance",
        "device_records_missing",
        "no_device_work",
        "steps_not_comparable",
        "work_leaks_into_window",
        "trace_repaired",
        "hidden_in_graphs",
    ),
    "regime": ("regimes",),
    "launch": (
        "many_tiny_kernels",
        "unfused_pointwise_chain",
        "repeated_op_sequence",
        "library_planning",
        "view_op_overhead",
        "graph_candidate",
        "graph_input_copies",
        "graph_rerecording",
        "graph_skipped",
        "host_bubble",
        "host_work",
    ),
    "compile": (
        "graph_break",
        "recompilation",
        "compile_not_amortised",
        "guard_overhead",
        "nothing_to_fuse",
        "addmm_operand_copy",
        "fallback_in_compiled_graph",
        "eager_remainder",
    ),
    "sync": (
        "device_readback",
        "data_dependent_shape",
        "pageable_copy",
        "copy_not_overlapped",
        "explicit_synchronize",
        "event_wait_or_poll",
        "tensor_built_on_host",
        "many_small_copies",
        "weights_moved_each_step",
    ),
    "memory": (
        "allocation_in_steady_state",
        "near_capacity",
        "duplicate_copy",
        "layout_copy",
        "zero_grad_fill",
        "cast_churn",
        "growing_cache",
        "constant_rebuilt",
    ),
    "kernel": (
        "hotspot_kernel",
        "memory_bound_kernel",
        "compute_bound_kernel",
        "tensor_cores_unused",
        "misaligned_gemm",
        "under_filled_grid",
        "layout_conversion",
        "sdpa_math_fallback",
        "hand_written_attention",
        "matvec_decode",
        "unfused_norm",
        "conv_bias_before_norm",
        "conv_autotune",
    ),
    "distributed": (
        "exposed_communication",
        "straggler",
        "small_collectives",
        "data_parallel_or_slow_backend",
        "compute_slowed_by_collective",
        "ddp_bucket_copies",
    ),
    "training": (
        "for_loop_optimizer",
        "foreach_not_fused",
        "data_loader_stall",
        "autograd_in_inference",
        "activation_recompute",
        "expensive_backward",
    ),
}


@cache
def builtin_rules() -> tuple[Rule, ...]:
    """All built-in rules in catalogue order."""
    rules: list[Rule] = []
    for family, files in _FILES.items():
        for file in files:
            module = importlib.import_module(f"lanewise.diagnose.rules.{family}.{file}")
            rules.extend(value for value in vars(module).values() if isinstance(value, Rule))
    return tuple(rules)


def third_party_rules() -> Iterable[Rule | tuple[str, Exception]]:
    """Rules of installed packages; a package that fails to load yields its name and the error instead."""
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = entry.load()
        except Exception as error:  # a broken plug-in is one red row, not the end of the report
            yield entry.name, error
            continue
        for value in loaded if isinstance(loaded, list | tuple) else (loaded,):
            if isinstance(value, Rule):
                yield value


def installed_rules() -> list[Rule]:
    """The built-in rules, and those of other packages that can be loaded."""
    return [*builtin_rules(), *(rule for rule in third_party_rules() if isinstance(rule, Rule))]


def find_rule(code: str) -> Rule:
    """The built-in or installed rule with a code (any case). Raises UsageError naming near codes."""
    rules = installed_rules()
    for candidate in rules:
        if code.upper() == candidate.code or code.lower() == candidate.name:
            return candidate
    near = [r.code for r in rules if r.code.startswith(code.upper()[:3])]
    raise UsageError(f"no rule {code!r}; {'near: ' + ', '.join(near) if near else 'run `lanewise rule` for the list'}")
