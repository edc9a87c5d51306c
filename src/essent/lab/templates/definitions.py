"""Words with their definitions, written for essent: what templates are generated from when no file is given."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from essent._core.registry import did_you_mean
from essent.errors import DataError
from essent.tasks.data import located_rows


class Definition(NamedTuple):
    """A word and what it means, the definition without its word."""

    word: str
    definition: str


DEFINITIONS = (
    Definition("anchor", "a heavy metal hook that keeps a ship in its place"),
    Definition("bakery", "a shop where bread and cakes are made and sold"),
    Definition("blanket", "a large piece of warm cloth that covers a bed"),
    Definition("bridge", "something built over a river or road so that people can cross it"),
    Definition("candle", "a stick of wax with a string inside that gives light when it burns"),
    Definition("carpenter", "a person who makes and mends things out of wood"),
    Definition("cheese", "a solid food made from milk"),
    Definition("clock", "a thing on the wall that shows what time it is"),
    Definition("courage", "the strength to do something although one is afraid"),
    Definition("desert", "a wide dry land with sand and very few plants"),
    Definition("dictionary", "a book that lists words and tells what they mean"),
    Definition("elephant", "a very big grey animal with a trunk and long tusks"),
    Definition("famous", "known by a great many people"),
    Definition("feather", "one of the light soft parts that cover the body of a bird"),
    Definition("forget", "to be no longer able to remember something"),
    Definition("freeze", "to turn into ice because of the cold"),
    Definition("garden", "a piece of ground beside a house where flowers and vegetables grow"),
    Definition("glove", "a piece of clothing that covers the hand and its fingers"),
    Definition("guitar", "a musical instrument with six strings that are plucked"),
    Definition("harbour", "a sheltered place at the coast where boats can stay"),
    Definition("honey", "the sweet sticky liquid that bees make"),
    Definition("hospital", "a building where ill and injured people are treated"),
    Definition("hungry", "feeling the need to eat"),
    Definition("island", "a piece of land with water all around it"),
    Definition("jealous", "unhappy because somebody else has what one wants"),
    Definition("ladder", "two long bars joined by steps, used for climbing up"),
    Definition("lemon", "a sour yellow fruit with a thick skin"),
    Definition("library", "a place where books can be read and borrowed"),
    Definition("mirror", "a piece of glass in which one can see oneself"),
    Definition("mountain", "a very high and steep hill"),
    Definition("needle", "a thin pointed piece of metal used for sewing"),
    Definition("noisy", "making a lot of loud sounds"),
    Definition("ocean", "a huge stretch of salt water between continents"),
    Definition("passport", "a small official book that one shows at the border of a country"),
    Definition("pillow", "a soft bag on which one lays the head in bed"),
    Definition("pilot", "a person who flies an aeroplane"),
    Definition("promise", "to say that one will certainly do something"),
    Definition("rainbow", "an arch of colours in the sky when the sun shines through rain"),
    Definition("scissors", "a tool with two blades for cutting paper or cloth"),
    Definition("shadow", "the dark shape behind something that stands in the light"),
    Definition("sleep", "to rest with closed eyes and an inactive mind"),
    Definition("spider", "a small creature with eight legs that spins webs"),
    Definition("stubborn", "unwilling to change one's mind even for good reasons"),
    Definition("teacher", "a person who helps others to learn at a school"),
    Definition("thunder", "the loud noise in the sky that follows lightning"),
    Definition("umbrella", "a folding roof on a stick that one carries in the rain"),
    Definition("village", "a group of houses in the country, smaller than a town"),
    Definition("whisper", "to speak very quietly so that others do not hear"),
    Definition("window", "an opening in a wall, filled with glass, that lets light in"),
    Definition("winter", "the coldest season of the year"),
)


def read_definitions(path: str | Path) -> tuple[Definition, ...]:
    """Read a .jsonl, .json, .csv, .tsv or .parquet file with the columns `word` and `definition`.

    Raises:
        DataError: no such file, no rows, a missing column, or an empty or other value; names file and line.
    """
    found = []
    for row in located_rows(Path(path)):
        for name in Definition._fields:
            if name not in row.values:
                raise DataError(f"{row.where}: no column {name!r}. {did_you_mean(name, list(row.values))}")
            value = row.values[name]
            if not isinstance(value, str) or not value.strip():
                raise DataError(f"{row.where}: {name!r} must be a text that is not empty, not {value!r}.")
        found.append(Definition(row.values["word"].strip(), row.values["definition"].strip()))
    if not found:
        raise DataError(f"{path} has no definitions.")
    return tuple(found)
