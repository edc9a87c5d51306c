"""Texts that the tests of the core share."""

TEXTS = [
    "A man is playing a large flute.",
    "dogs",
    "",
    "How far is the moon from the earth?",
    "She doesn't like cold coffee; however, she drinks it every morning!",
    "Two dogs run through the green field, chasing a red ball",
    "unbelievably 12 kittens: Ünïcödé 你好 and so on.",
    "The stock market fell sharply on Monday",
]
LONG = "The old oak tree stayed there all the morning and the kitten climbed it. " * 14  # 200 tokens or so
HEADS = ("1-1", "2-3", "3-4")  # tiny models have 3 layers of 4 heads
