"""Embed any number of texts in parts that are written atomically; a resumed run writes the same bytes."""

from essent._core.lazy import optional_import

for _library in ("pyarrow", "fsspec"):
    optional_import(_library, "bulk")  # before the imports: the error names the missing extra

from essent.bulk.models import BulkSettings  # noqa: E402
from essent.bulk.run import BulkResult, encode  # noqa: E402

__all__ = ["BulkResult", "BulkSettings", "encode"]
