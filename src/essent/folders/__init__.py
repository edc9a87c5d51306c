"""What a model's folder may say: files read with limits, keys that are known, places inside, digests of every file.

A folder is data. Nothing in it can have code run, pickled weights read, files outside read, or anything downloaded;
only the caller can allow that, with `trust_remote_code=True`. No torch is needed here.
"""

from essent.folders.check import check_folder, check_model
from essent.folders.digests import DIGESTS, check_digests, digest_of_file, has_digests, listed_names, write_digests
from essent.folders.names import ENCODER, GRAPH, STATE_FOLDER, is_read
from essent.folders.opening import guarded, opening
from essent.folders.places import check_places, check_replaceable, names_to_keep
from essent.folders.reading import damage_named, read_arrays, read_json

__all__ = [
    "DIGESTS",
    "ENCODER",
    "GRAPH",
    "STATE_FOLDER",
    "check_digests",
    "check_folder",
    "check_model",
    "check_places",
    "check_replaceable",
    "damage_named",
    "digest_of_file",
    "guarded",
    "has_digests",
    "is_read",
    "listed_names",
    "names_to_keep",
    "opening",
    "read_arrays",
    "read_json",
    "write_digests",
]
