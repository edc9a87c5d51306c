"""What the tests of reproduced tables share."""

WORDS = "man dog market coffee moon kitten flute ball sentence word tree field green cold old far red".split()


def text(number: int) -> str:
    chosen = [WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 7, 5)]
    return f"The {' '.join(chosen)} {number}."
