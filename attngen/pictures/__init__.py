"""Pictures of attention: the dataflow of a spec as SVG, and what each head looks at.

Input: an AttentionIR as `elaborate` makes it. Output: SVG text (`draw_dataflow`).
"""

from attngen.pictures.dataflow import draw_dataflow
from attngen.pictures.words import LANGUAGES, Language

__all__ = ["LANGUAGES", "Language", "draw_dataflow"]
