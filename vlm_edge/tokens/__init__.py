"""
Tokens: from the size of a picture to its exact number of vision tokens.

Sizes in, integers out; knows no image library and no HTTP.

    family = lookup("Qwen/Qwen2.5-VL-7B-Instruct", max_pixels=1_003_520)
    family.image(Size(1280, 720))
"""

from vlm_edge.tokens.families import FAMILIES
from vlm_edge.tokens.lookup import lookup, model_type, own_rule
from vlm_edge.tokens.most import AtMost, dearest
from vlm_edge.tokens.rule import Rule

__all__ = ["FAMILIES", "AtMost", "Rule", "dearest", "lookup", "model_type", "own_rule"]
