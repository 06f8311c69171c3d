"""The machine record: what a step time depends on besides the program. No host, user or absolute path.

Every fact is optional. A fact that cannot be read is left out rather than guessed, and nothing here raises.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lanewise import nvml

__all__ = ["clocks", "command_line", "describe", "devices_in_use", "energy_counter"]

_VARIABLES = re.compile(
    r"^(TORCH|PYTORCH|TRITON|CUDA|CUBLAS|CUDNN|NCCL|OMP|MKL|KINETO|TEARDOWN_CUPTI|DISABLE_CUPTI|NVIDIA_TF32|HIP|ROCR)"
)
_SECRET = re.compile(r"(?i)token|secret|passw|credential|api[-_]?key|auth")
_THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


def describe() -> dict[str, Any]:
    """Versions, device, settings and git revision, as nested plain values; torch's part only if it is loaded."""
    facts: dict[str, Any] = {}
    for name, read in _PARTS.items():
        with contextlib.suppress(Exception):
            if value := read():
                facts[name] = value
    return facts


def command_line(words: list[str]) -> list[str]:
    """The command without secrets, absolute paths made relative to the working directory or cut to their last part."""
    kept: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        named = before.startswith("-") and "=" not in before and _SECRET.search(before)
        kept.append("..." if named and not word.startswith("-") else _private(word))
    return kept


def devices_in_use() -> tuple[str, ...]:
    """Names of the current CUDA device and of those where torch holds memory; none before CUDA is in use."""
    with contextlib.suppress(Exception):
        if _cuda_in_use():
            cuda: Any = sys.modules["torch"].cuda
            current = cuda.current_device()
            used = [index for index in range(cuda.device_count()) if index == current or cuda.memory_reserved(index)]
            return tuple(cuda.get_device_name(index) for index in used)
    return ()


def clocks() -> dict[str, Any]:
    """Clocks, power, temperature and throttle reasons of the device in use; empty where they cannot be read.

    Asks NVML, else `nvidia-smi` (50 ms or more).
    """
    with contextlib.suppress(Exception):
        if _cuda_in_use():
            return _nvml_clocks() or _smi_clocks()
    return {}


def energy_counter() -> Callable[[], float | None] | None:
    """Reads what the device in use has drawn so far, J; None where that cannot be read."""
    with contextlib.suppress(Exception):
        if _cuda_in_use() and (device := nvml.open_device(_uuid())) is not None and device.energy_j() is not None:
            return device.energy_j
    return None


def _private(word: str) -> str:
    prefix, equals, value = word.partition("=")
    if _SECRET.search(prefix) and equals:
        return f"{prefix}=..."
    if equals and os.path.isabs(value):
        return f"{prefix}={_relative(value)}"
    return _relative(word) if os.path.isabs(word) else word


def _relative(path: str) -> str:
    with contextlib.suppress(ValueError):
        relative = os.path.relpath(path)
        if not relative.startswith(".."):
            return relative
    return Path(path).name


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "implementation": platform.python_implementation()}
    for name in ("torch", "triton", "torchvision", "transformers", "lightning", "accelerate", "numpy"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str) or version is not None:
            found[name] = str(version)
    return found


def _torch() -> dict[str, Any]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {}
    facts: dict[str, Any] = {}
    for name, read in {
        "git": lambda: torch.version.git_version[:12],
        "cuda": lambda: torch.version.cuda,
        "hip": lambda: torch.version.hip,
        "cudnn": lambda: torch.backends.cudnn.version() if torch.version.cuda else None,
        "threads": torch.get_num_threads,
        "interop_threads": torch.get_num_interop_threads,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "tf32_cudnn": lambda: torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "grad_enabled": torch.is_grad_enabled,
        "dynamo_loaded": lambda: "torch._dynamo" in sys.modules,
        "compile_mode": _compile_mode,
    }.items():
        with contextlib.suppress(Exception):
            value = read()
            if value is not None:
                facts[name] = value
    return facts


def _compile_mode() -> str | None:
    """What `torch.compile(mode=...)` was given, told from the settings that the mode stands for; None if never called.

    Of several modes those that use graphs come first, with `, ` between them. Looks through all objects once: no part
    of torch keeps a list, and to watch `torch.compile` would change what the program calls.
    """
    torch: Any = sys.modules["torch"]
    wrapper, config = getattr(torch, "_TorchCompileInductorWrapper", None), sys.modules.get("torch._inductor.config")
    if wrapper is None or config is None:
        return None
    found = {_mode_of(each.config, config) for each in gc.get_objects() if type(each) is wrapper}
    return ", ".join(mode for mode in _MODES if mode in found) or None


_MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "default")


def _mode_of(given: dict[str, Any], config: Any) -> str:
    tune = given.get("max_autotune", config.max_autotune)
    graphs = given.get("triton.cudagraphs", config.triton.cudagraphs)
    if tune:
        return "max-autotune" if graphs else "max-autotune-no-cudagraphs"
    return "reduce-overhead" if graphs else "default"


def _device() -> dict[str, Any]:
    if not _cuda_in_use():
        return {}
    torch: Any = sys.modules["torch"]
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    facts = {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "visible_devices": torch.cuda.device_count(),
        "allocator": torch.cuda.get_allocator_backend(),
        "reserved_bytes": torch.cuda.memory_reserved(),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _host() -> dict[str, Any]:
    facts: dict[str, Any] = {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()}
    with contextlib.suppress(AttributeError, OSError):
        facts["cores_allowed"] = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError):
        facts["load"] = round(os.getloadavg()[0], 2)
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
        facts["processor"] = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    return facts


def _variables() -> dict[str, str]:
    return {
        # A path tells where the user's home is; that the variable is set is all that matters.
        name: "(a path)" if os.path.isabs(value) else value[:200]
        for name, value in sorted(os.environ.items())
        if _VARIABLES.match(name) and not _SECRET.search(name)
    }


def _git() -> dict[str, Any]:
    def ask(*words: str) -> str:
        done = subprocess.run(("git", *words), capture_output=True, text=True, errors="replace", timeout=2, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    revision = ask("rev-parse", "--short=12", "HEAD")
    return {"revision": revision, "modified": bool(ask("status", "--porcelain", "-uno"))} if revision else {}


def _cuda_in_use() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _uuid() -> str:
    torch: Any = sys.modules["torch"]
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _nvml_clocks() -> dict[str, Any]:
    reading = nvml.read(_uuid())
    return {} if reading is None else _clock_facts(reading, nvml.driver_version())


def _smi_clocks() -> dict[str, Any]:
    fields = "clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,driver_version"
    # The field for throttle reasons was renamed; an unknown one makes the whole query fail.
    for reasons in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        words = ["nvidia-smi", f"--query-gpu={fields},{reasons}", "--format=csv,noheader,nounits"]
        words.append(f"--id={nvml.full_uuid(_uuid())}")
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=5, check=False)
        if done.returncode == 0:
            sm, memory, power, limit, temperature, driver, bits = (part.strip() for part in done.stdout.split(","))
            reading = nvml.Reading(int(sm), int(memory), float(power), float(limit), int(temperature), int(bits, 16))
            return _clock_facts(reading, driver)
    return {}


def _clock_facts(reading: nvml.Reading, driver: str) -> dict[str, Any]:
    return {
        "sm_mhz": reading.sm_mhz,
        "memory_mhz": reading.memory_mhz,
        "power_w": round(reading.power_w, 1),
        "power_limit_w": round(reading.power_limit_w, 1),
        "temperature_c": reading.temperature_c,
        "throttled": [name for bit, name in _THROTTLE.items() if reading.throttle_bits & bit],
        "driver": driver,
    }


_PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "versions": _versions,
    "torch": _torch,
    "device": _device,
    "clocks": clocks,
    "host": _host,
    "variables": _variables,
    "git": _git,
}
