"""What a model's router means."""
import json
import math
import operator
import os
from dataclasses import asdict, dataclass

from ._library import Handle, library, take_text

INTEGERS = ("experts", "top_k", "hidden", "n_group", "topk_group")
FLAGS = ("bias", "gate_bias", "norm_topk_prob")


def plain(name, value):
    """A Python value that JSON has, of one of numpy's or of torch's that say the same."""
    try:
        if name in INTEGERS and not isinstance(value, bool):
            return operator.index(value)
        if name in FLAGS and type(value).__name__ in ("bool", "bool_"):
            return bool(value)
        if name == "routed_scaling_factor" and math.isfinite(value):
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    if name in ("score", "selection", "group_score") and isinstance(value, str):
        return value
    wanted = ("an integer" if name in INTEGERS else "True or False" if name in FLAGS else
              "a finite number" if name == "routed_scaling_factor" else "a string")
    hint = " (the values go to route and verify)" if name in ("bias", "gate_bias") else ""
    raise ValueError(f"Router: {name}: expected {wanted}{hint}, found {type(value).__name__} "
                     f"{str(value)[:40]!r}")


def open_router(config, figures):
    """A handle on the library's router; figures: keys over the config's, or None."""
    text = None if figures is None else json.dumps(figures).encode()
    path = None if config is None else os.fsencode(config)
    if path is not None and b"\0" in path:
        raise ValueError("config: a path with a zero byte")
    return Handle(library.mr_api_router_new, library.mr_api_router_free, path, text)


@dataclass(frozen=True, kw_only=True)
class Router:
    """logit = hidden . gate weight (+ gate bias) -> score -> rank key = score + correction bias ->
    with groups, the topk_group best groups stay -> the top_k largest keys among them -> weight =
    score / (sum of the selected scores, if norm_topk_prob) * routed_scaling_factor.

    score: "sigmoid", "softmax", "sqrtsoftplus". selection: "score"; or "logit": rank by logit, and
    the score (a softmax: over the selected alone) comes after. group_score: "top2_sum" (DeepSeek-V3)
    or "max" (DeepSeek-V2), to be said if n_group > 1. bias, gate_bias: whether there is a correction
    bias, and a linear bias in the logit. hidden: None, or the columns that hidden must have.

    norm_topk_prob has no default: engines differ, and a test must say which is meant."""
    experts: int
    top_k: int
    score: str
    norm_topk_prob: bool
    bias: bool = False
    gate_bias: bool = False
    n_group: int = 1
    topk_group: int = 1
    group_score: "str | None" = None
    routed_scaling_factor: float = 1.0
    selection: str = "score"
    hidden: "int | None" = None

    def __post_init__(self):
        for name, value in asdict(self).items():
            if value is not None:
                object.__setattr__(self, name, plain(name, value))
        with self.open():
            pass

    def open(self):
        """A handle on it. None is what the library takes as not said."""
        figures = {k: v for k, v in asdict(self).items() if v is not None}
        return open_router(None, figures)

    @classmethod
    def from_config(cls, path, **overrides):
        """From a Hugging Face config.json, read as `moeref router` shows it: what is not understood
        is refused. Layers that choose by token id (DeepSeek-V4's first ones) are not served."""
        named = {k: plain(k, v) for k, v in overrides.items() if k in cls.__dataclass_fields__}
        if len(named) < len(overrides):
            raise ValueError("Router: no such figure: " + ", ".join(set(overrides) - set(named)))
        with open_router(path, named or None) as handle:
            figures = take_text(library.mr_api_router_text(handle))
        figures.pop("hash_layers")
        return cls(**figures)
