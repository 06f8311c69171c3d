"""Paths of modules in the network: `layer3.0.conv2` for the row that the profiler calls `nn.Module: Conv2d_38`.

The profiler counts instances per class in the order of their first call. Which instance is inside which is seen in the
calls; what its attribute is called is not. It is told, in this order, by

1. the list of modules that a recorder put into the file (`lanewise.modules`: pairs of path and class, in the order of
   `named_modules()`), where the classes agree;
2. the table of well-known networks below, where the whole sequence of called children agrees;
3. the position, for the children of a `Sequential`;
4. otherwise class and count among the children of that class: `Conv2d_1` is the second convolution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lanewise.trace.groups import mask_of
from lanewise.trace.model import Trace
from lanewise.tree.forest import nearest_marked
from lanewise.tree.from_trace.contexts import Contexts
from lanewise.tree.model import NodeKind
from lanewise.tree.names import parse_module

__all__ = ["ModuleNames", "name_modules"]

RECORDED, SHAPES, POSITIONS, NONE = "recorded", "known shapes", "positions", "none"

_LONGEST_LIST = 200_000


class ModuleNames(NamedTuple):
    """Path and class of each module name, by row of `Trace.names`; source is the best way that told any of them."""

    path: dict[int, str]
    cls: dict[int, str]
    source: str


@dataclass(eq=False)
class _Instance:
    name: int
    cls: str
    start: int
    children: list[_Instance] = field(default_factory=list["_Instance"])
    calls: list[_Instance] = field(default_factory=list["_Instance"])
    path: str | None = None


@dataclass(eq=False)
class _Recorded:
    """One module as a recorder listed it. A container that is never called lends its children to its parent."""

    path: str
    cls: str
    children: list[_Recorded] = field(default_factory=list["_Recorded"])


def name_modules(trace: Trace, contexts: Contexts) -> ModuleNames:
    """Paths of all modules of a trace."""
    roots, instances = _instances(trace, contexts)
    if not instances:
        return ModuleNames({}, {}, NONE)
    sources: set[str] = set()
    recorded = _recorded_roots(trace.metadata)
    for root, prefix in zip(roots, _root_names(roots), strict=True):
        alike = [entry for entry in recorded if entry.cls == root.cls]
        root.path = prefix if len(roots) > 1 else ""
        if len(alike) == 1:
            _from_recorded(root, alike[0], root.path, sources)
        _from_shapes(root, sources)
        if not root.path:
            root.path = root.cls
    for source in (RECORDED, SHAPES, POSITIONS):
        if source in sources:
            break
    else:
        source = POSITIONS
    return ModuleNames(
        {instance.name: instance.path or instance.cls for instance in instances},
        {instance.name: instance.cls for instance in instances},
        source,
    )


def _root_names(roots: Sequence[_Instance]) -> list[str]:
    """A name for each root, told apart by a count where a class comes twice."""
    total: dict[str, int] = {}
    for root in roots:
        total[root.cls] = total.get(root.cls, 0) + 1
    seen: dict[str, int] = {}
    names: list[str] = []
    for root in roots:
        index = seen.get(root.cls, 0)
        seen[root.cls] = index + 1
        names.append(root.cls if total[root.cls] == 1 else f"{root.cls}_{index}")
    return names


def _instances(trace: Trace, contexts: Contexts) -> tuple[list[_Instance], list[_Instance]]:
    """Roots and all instances, in the order of their first call, with their children."""
    rows = np.flatnonzero(contexts.kind == NodeKind.MODULE)
    if len(rows) == 0:
        return [], []
    count = contexts.events
    inner = contexts.inner
    event = contexts.event[rows]
    order = np.lexsort((trace.nesting.depth[event], trace.start[event]))
    rows, event = rows[order], event[order]
    marked = contexts.kind[:count] == NodeKind.MODULE
    nearest = nearest_marked(inner, marked)
    above = np.where(inner[rows] >= 0, nearest[inner[rows]], -1)
    names, first, of = np.unique(trace.name[event], return_index=True, return_inverse=True)
    of_row = np.full(count, -1, dtype=np.int64)
    of_row[rows] = of
    parent_instance = np.where(above >= 0, of_row[above], -1)

    made: dict[int, _Instance] = {}
    by_first = np.argsort(first, kind="stable").tolist()
    for index in by_first:
        name = int(names[index])
        parsed = parse_module(trace.names[name])
        made[index] = _Instance(name, parsed[0] if parsed else trace.names[name], int(first[index]))
    roots: list[_Instance] = []
    for index in by_first:
        parent = int(parent_instance[first[index]])
        if parent >= 0 and parent != index and made[parent].start <= made[index].start:
            made[parent].children.append(made[index])
        else:
            roots.append(made[index])
    # The sequence of calls within the first call of each instance, repeats included: it gives positions.
    first_row = rows[first]
    is_first = mask_of(count, first_row)
    inside = (above >= 0) & is_first[np.maximum(above, 0)]
    for child, parent in zip(of[inside].tolist(), of_row[above[inside]].tolist(), strict=True):
        made[parent].calls.append(made[child])
    return roots, [made[index] for index in by_first]


# -- what a recorder listed --------------------------------------------------------------------------------------------


def _recorded_roots(metadata: Mapping[str, Any]) -> list[_Recorded]:
    """The recorded modules as trees. The file is untrusted: anything of another form is ignored."""
    own = metadata.get("lanewise")
    listed = own.get("modules") if isinstance(own, Mapping) else None
    if not isinstance(listed, list) or len(listed) > _LONGEST_LIST:
        return []
    by_path: dict[str, _Recorded] = {}
    roots: list[_Recorded] = []
    for entry in listed:
        if not isinstance(entry, list | tuple) or len(entry) != 2 or not all(isinstance(text, str) for text in entry):
            return []
        module = _Recorded(str(entry[0]), str(entry[1]))
        parent = by_path.get(module.path.rpartition(".")[0]) if module.path else None
        if module.path == "":
            by_path = {}
            roots.append(module)
        elif parent is not None:
            parent.children.append(module)
        by_path[module.path] = module
    return roots


def _from_recorded(instance: _Instance, module: _Recorded, prefix: str, sources: set[str]) -> None:
    """Names for everything below an instance that a recorded module describes."""
    stack = [(instance, module)]
    while stack:
        instance, module = stack.pop()
        called = {child.cls for child in instance.children}
        candidates = _callable_children(module, called)
        for cls in called:
            mine = [child for child in instance.children if child.cls == cls]
            theirs = [child for child in candidates if child.cls == cls]
            # Fewer calls than modules leave open which ones were called.
            if len(mine) != len(theirs):
                continue
            for child, entry in zip(mine, theirs, strict=True):
                child.path = f"{prefix}.{entry.path}" if prefix else entry.path
                sources.add(RECORDED)
                stack.append((child, entry))


def _callable_children(module: _Recorded, called: set[str]) -> list[_Recorded]:
    result: list[_Recorded] = []
    for child in module.children:
        if child.cls in called or not child.children:
            result.append(child)
        else:
            result += _callable_children(child, called)
    return result


# -- well-known networks -----------------------------------------------------------------------------------------------

# Class of the module -> its children in the order of their first call: attribute, class, and how often
# ("" once, "?" or not, "*" any number: the attribute then takes an index).
_SHAPES: tuple[tuple[str, str], ...] = (
    (
        r"ResNet",
        "conv1=Conv2d bn1=.*Norm.* relu=ReLU maxpool=MaxPool2d layer1=Sequential layer2=Sequential layer3=Sequential "
        "layer4=Sequential avgpool=AdaptiveAvgPool2d fc=Linear",
    ),
    (r"BasicBlock", "conv1=Conv2d bn1=.*Norm.* relu=ReLU conv2=Conv2d bn2=.*Norm.* downsample=Sequential?"),
    (
        r"Bottleneck",
        "conv1=Conv2d bn1=.*Norm.* relu=ReLU conv2=Conv2d bn2=.*Norm.* conv3=Conv2d bn3=.*Norm.* "
        "downsample=Sequential?",
    ),
    (r"\w+ForCausalLM", "model=\\w+Model lm_head=Linear"),
    (r"\w+Model", "embed_tokens=Embedding rotary_emb=\\w*RotaryEmbedding? layers=\\w+DecoderLayer* norm=\\w*RMSNorm"),
    (
        r"\w+DecoderLayer",
        "input_layernorm=\\w*RMSNorm self_attn=\\w+Attention post_attention_layernorm=\\w*RMSNorm mlp=\\w*MLP",
    ),
    (r"(Llama|Mistral|Qwen2|Mixtral)\w*Attention", "q_proj=Linear k_proj=Linear v_proj=Linear o_proj=Linear"),
    (r"(Llama|Mistral|Qwen2|Qwen3)MLP", "gate_proj=Linear act_fn=\\w+ up_proj=Linear down_proj=Linear"),
    (r"TransformerEncoder", "layers=TransformerEncoderLayer* norm=LayerNorm?"),
    (r"(DistributedDataParallel|DataParallel|FullyShardedDataParallel)", "module=.+"),
    (r"OptimizedModule", "_orig_mod=.+"),
)


class _Item(NamedTuple):
    attribute: str
    cls: re.Pattern[str]
    repeat: str


def _parse(shape: str) -> list[_Item]:
    items: list[_Item] = []
    for part in shape.split():
        attribute, _, cls = part.partition("=")
        # `.*` and `\w*` end a class pattern too: a repeat mark follows only a word.
        repeat = cls[-1] if cls[-1] in "?*" and cls[-2].isalpha() else ""
        items.append(_Item(attribute, re.compile(cls.removesuffix(repeat) if repeat else cls), repeat))
    return items


_TABLE = [(re.compile(cls), _parse(shape)) for cls, shape in _SHAPES]


def _from_shapes(root: _Instance, sources: set[str]) -> None:
    """Names for the children that nothing has named yet, from the top down."""
    stack = [root]
    while stack:
        instance = stack.pop()
        if any(child.path is None for child in instance.children):
            labels = _known_shape(instance)
            if labels is not None:
                sources.add(SHAPES)
            else:
                labels = _sequence(instance) or _counted(instance)
            for child, label in zip(instance.children, labels, strict=True):
                if child.path is None:
                    child.path = f"{instance.path}.{label}" if instance.path else label
        stack += instance.children


def _known_shape(instance: _Instance) -> list[str] | None:
    for cls, items in _TABLE:
        if cls.fullmatch(instance.cls):
            labels = _match(instance.children, items)
            if labels is not None:
                return labels
    return None


def _match(children: Sequence[_Instance], items: Sequence[_Item]) -> list[str] | None:
    """A label for each child if the children are exactly what the shape says, else None."""
    labels: list[str] = []
    at = 0
    for item in items:
        if item.repeat == "*":
            begin = at
            while at < len(children) and item.cls.fullmatch(children[at].cls):
                labels.append(f"{item.attribute}.{at - begin}")
                at += 1
            if at == begin:
                return None
        elif at < len(children) and item.cls.fullmatch(children[at].cls):
            labels.append(item.attribute)
            at += 1
        elif item.repeat != "?":
            return None
    return labels if at == len(children) else None


def _sequence(instance: _Instance) -> list[str] | None:
    """Positions of the children of a `Sequential`, from its first call; a shared child takes its first position."""
    if instance.cls != "Sequential":
        return None
    position = {id(child): index for index, child in reversed(list(enumerate(instance.calls)))}
    if any(id(child) not in position for child in instance.children):
        return None
    return [str(position[id(child)]) for child in instance.children]


def _counted(instance: _Instance) -> list[str]:
    seen: dict[str, int] = {}
    labels: list[str] = []
    for child in instance.children:
        index = seen.get(child.cls, 0)
        seen[child.cls] = index + 1
        labels.append(f"{child.cls}_{index}")
    return labels
