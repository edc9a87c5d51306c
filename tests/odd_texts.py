"""Texts that tokenizers stumble over, and ids by their lengths."""

import numpy as np

ODD = [
    "",
    " ",
    "  ",
    "the",
    "The.",
    "the  man ",
    " dogs\tcats\nred\r\nball",
    "[MASK] is [SEP]the[PAD] end[UNK]x",
    "flute\x0bflute\x0cflute\x1cflute\x85flute\u2028flute\u3000flute\xa0flute\u200bflute",
    "你好 morning你好 的",
    "e\u0301te \u0301a İstanbul ΟΔΟΣ ŉ ﬁeld",
    "\ud83d\ude00 lone \ud800 surrogate",
    "\x00\ufffd \ufffd",
    "##s ##ing s ##",
]


def split(ids: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
