"""What pictures say, in each language; formulas and names of the spec are the same in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Language: TypeAlias = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Words:
    """The phrases of one language; numbers and names go where ``{}`` stands.

    Where a count may be one, the phrase for that stands behind a bar; see :func:`counted`.

    Attributes:
        title: of the whole picture; `facts_layer` and `facts_core`: the line below it.
        facts_heads: (heads, head_dim).
        sharing: (heads, kv_heads, group).
        drawn_for: (length).
        table: (least, greatest).
        origins: what the conditions of a mask are called, by the key of the spec they come from.
    """

    title: str
    facts_layer: str
    facts_core: str
    facts_heads: str
    facts_values: str
    facts_shared: str
    input: str
    query: str
    key: str
    value: str
    projection: str
    split: str
    concat: str
    output: str
    lse: str
    logits: str
    probabilities: str
    heads: str
    head: str
    kv_head: str
    sharing: str
    sharing_one: str
    score: str
    softcap: str
    bias: str
    mask: str
    no_mask: str
    over_keys: str
    sink: str
    off_by_one: str
    no_softmax: str
    drawn_for: str
    axes: str
    unknown: str
    argument: str
    table: str
    sink_argument: str
    symbols_layer: str
    symbols_core: str
    positions_layer: str
    positions_right: str
    positions_left: str
    batch: str
    biases: str
    origins: dict[str, str]


_EN = Words(
    title="Dataflow of {}",
    facts_layer="layer, {} wide",
    facts_core="core: queries, keys and values in",
    facts_heads="{0} heads of {1}|one head of {1}",
    facts_values="values {}",
    facts_shared="{} key and value heads|one key and value head",
    input="Input",
    query="queries",
    key="keys",
    value="values",
    projection="projection",
    split="split into {} heads|one head",
    concat="concatenate {} heads|output of the head",
    output="Output",
    lse="log-sum-exp of each row",
    logits="logits: s after the mask",
    probabilities="probabilities: P",
    heads="{} heads, each by itself|one head",
    head="Head {}",
    kv_head="KV head {}",
    sharing_one="all {} query heads share one key and value head",
    sharing="{} query heads share {} key and value heads, {} each",
    score="score",
    softcap="softcap",
    bias="bias",
    mask="mask",
    no_mask="every query sees every key",
    over_keys="over the keys",
    sink="the sum takes exp(sink[{}]) as well",
    off_by_one="the sum takes exp(0) = 1 as well",
    no_softmax="for each key by itself",
    drawn_for="{0} × {0}",
    axes="small squares: the mask, queries down, keys across",
    unknown="hatched: depends on data of the call",
    argument="given with each call",
    table="table of the spec, {} … {}",
    sink_argument="a learned logit per head, given with each call; it has no value of its own",
    symbols_layer="S: length of the sequence, from which queries, keys and values come",
    symbols_core="S: queries, T: keys and values",
    positions_layer="q and k: positions in the sequence",
    positions_right="query i stands at q = T − S + i, key j at k = j",
    positions_left="query i stands at q = i, key j at k = j",
    batch="a batch puts one more axis in front",
    biases="projections add a bias where the weights have one",
    origins={
        "causal": "causal",
        "prefix": "prefix",
        "window.left": "window, left",
        "window.right": "window, right",
        "chunk": "chunk",
        "dilation": "dilation",
        "global_tokens": "global tokens",
    },
)

_ZH = Words(
    title="{} 的数据流",
    facts_layer="完整层，宽 {}",
    facts_core="核心：输入查询、键和值",
    facts_heads="{} 个头，每头 {}",
    facts_values="值宽 {}",
    facts_shared="{} 个键值头",
    input="输入",
    query="查询",
    key="键",
    value="值",
    projection="投影",
    split="拆成 {} 个头",
    concat="拼接 {} 个头",
    output="输出",
    lse="每行的 log-sum-exp",
    logits="logits：掩码之后的 s",
    probabilities="probabilities：即 P",
    heads="{} 个头，各自独立计算",
    head="头 {}",
    kv_head="键值头 {}",
    sharing_one="全部 {} 个查询头共用一个键值头",
    sharing="{} 个查询头共用 {} 个键值头，每 {} 个一组",
    score="改写分数",
    softcap="软上限",
    bias="偏置",
    mask="掩码",
    no_mask="每个查询看到所有键",
    over_keys="沿键归一化",
    sink="分母另加 exp(sink[{}])",
    off_by_one="分母另加 exp(0) = 1",
    no_softmax="每个键单独计算",
    drawn_for="{0} × {0}",
    axes="小方格：掩码，纵向为查询，横向为键",
    unknown="斜线：取决于调用时的数据",
    argument="每次调用时给出",
    table="规格中的表，{} … {}",
    sink_argument="每个头一个可学习的 logit，调用时给出；它没有对应的值向量",
    symbols_layer="S：序列长度，查询、键和值都来自这个序列",
    symbols_core="S：查询数，T：键和值数",
    positions_layer="q 和 k：在序列中的位置",
    positions_right="查询 i 位于 q = T − S + i，键 j 位于 k = j",
    positions_left="查询 i 位于 q = i，键 j 位于 k = j",
    batch="批处理时最前面多一个轴",
    biases="权重带偏置时，投影会加上偏置",
    origins={
        "causal": "因果",
        "prefix": "前缀",
        "window.left": "窗口，左侧",
        "window.right": "窗口，右侧",
        "chunk": "分块",
        "dilation": "空洞",
        "global_tokens": "全局词元",
    },
)


def counted(phrase: str, count: int, *more: int) -> str:
    """`phrase` for `count`: the part behind its bar for one, where it has one."""
    many, bar, one = phrase.partition("|")
    return (one if bar and count == 1 else many).format(count, *more)


LANGUAGES: dict[Language, Words] = {"en": _EN, "zh": _ZH}
