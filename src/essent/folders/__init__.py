"""What a model's folder may say: files read with limits, values that are safe, places inside, digests of every file.

A folder is data. Nothing in it can have code run, pickled weights read, files outside read, or anything downloaded;
only the caller can allow that, with `trust_remote_code=True`. No torch is needed here.
"""

from essent.folders.check import check_folder, check_model
from essent.folders.contents import (
    ABOUT,
    ARRAYS,
    FORMAT,
    LAYOUTS,
    check_layout,
    is_bare_table,
    is_essent_folder,
    is_exported_folder,
    kept_settings,
    read_about,
    read_config,
    read_modules,
    read_settings,
)
from essent.folders.digests import DIGESTS, check_digests, digest_of_file, has_digests, listed_names, write_digests
from essent.folders.names import ENCODER, GRAPH, STATE_FOLDER, is_read
from essent.folders.opening import guarded, opening
from essent.folders.places import check_places, check_replaceable, names_to_keep
from essent.folders.reading import damage_named, read_arrays, read_json
from essent.folders.rules import ANYTHING, SENTENCE_TRANSFORMERS, TEXT, WHOLE, Kind, listed, mapping, optional
from essent.folders.weights import WEIGHTS, weight_shapes

__all__ = [
    "ABOUT",
    "ANYTHING",
    "ARRAYS",
    "DIGESTS",
    "ENCODER",
    "FORMAT",
    "GRAPH",
    "LAYOUTS",
    "SENTENCE_TRANSFORMERS",
    "STATE_FOLDER",
    "TEXT",
    "WEIGHTS",
    "WHOLE",
    "Kind",
    "check_digests",
    "check_folder",
    "check_layout",
    "check_model",
    "check_places",
    "check_replaceable",
    "damage_named",
    "digest_of_file",
    "guarded",
    "has_digests",
    "is_bare_table",
    "is_essent_folder",
    "is_exported_folder",
    "is_read",
    "kept_settings",
    "listed",
    "listed_names",
    "mapping",
    "names_to_keep",
    "opening",
    "optional",
    "read_about",
    "read_arrays",
    "read_config",
    "read_json",
    "read_modules",
    "read_settings",
    "weight_shapes",
    "write_digests",
]
