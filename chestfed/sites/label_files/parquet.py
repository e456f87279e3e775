"""The columns of a parquet file, unless they would fill the memory: a word of its dictionary is stored once.

Text is read as it is stored, words and references to them, and its size is computed before it is written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chestfed.sites.label_files.source import LARGEST, TOO_LARGE, UnreadableError

_AGAIN = "export the table again"


class ParquetColumns:
    """A parquet file that is open: `names` of its columns, which `read` returns.

    Raises `UnreadableError` if it is not one.
    """

    def __init__(self, path: Path) -> None:
        try:
            plain = pq.ParquetFile(path)
            leaves = [plain.schema.column(place) for place in range(len(plain.schema))]
            text = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            self._file = pq.ParquetFile(path, read_dictionary=text)
        except (pa.ArrowException, OSError):
            raise UnreadableError("is not a parquet file", _AGAIN) from None
        self._schema = plain.schema_arrow
        self.names = [str(name) for name in self._schema.names]

    def read(self, names: Sequence[str]) -> pa.Table:
        """These columns.

        Raises `UnreadableError` if the file is damaged, or they take more than `LARGEST` bytes.
        """
        if self._stated_bytes(names) > LARGEST:
            raise UnreadableError(*TOO_LARGE)
        schema, parts, total = pa.schema([self._schema.field(name) for name in names]), [], 0
        try:
            for group in range(self._file.num_row_groups):  # pyarrow cannot join lists of references
                stored = self._file.read_row_group(group, columns=list(names)).select(names)
                total += sum(_count_bytes(chunk) for column in stored.columns for chunk in column.chunks)
                if total > LARGEST:
                    raise UnreadableError(*TOO_LARGE)
                parts.append(stored.cast(schema))
        except (pa.ArrowException, OSError):
            raise UnreadableError("is damaged or truncated", _AGAIN) from None
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _stated_bytes(self, names: Sequence[str]) -> int:
        """What the columns take without compression, with their dictionaries, by what the file says of itself."""
        about = self._file.metadata
        groups = [about.row_group(place) for place in range(about.num_row_groups)]
        chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
        return sum(
            max(chunk.total_uncompressed_size, 4 * chunk.num_values)
            for chunk in chunks
            if chunk.path_in_schema.startswith(tuple(f"{name}." for name in names)) or chunk.path_in_schema in names
        )


def _count_bytes(cells: pa.Array) -> int:
    """What cells take once each has its word instead of a reference to it."""
    if pa.types.is_struct(cells.type):
        return sum(map(_count_bytes, cells.flatten()))
    if pa.types.is_map(cells.type):
        return 4 * len(cells) + _count_bytes(cells.keys) + _count_bytes(cells.items)
    if pa.types.is_nested(cells.type):
        return 4 * len(cells) + _count_bytes(cells.flatten())
    if not pa.types.is_dictionary(cells.type):
        return int(cells.nbytes)
    used = np.bincount(cells.indices.drop_null().to_numpy(), minlength=len(cells.dictionary))
    words = cells.dictionary
    text = pa.types.is_string(words.type) or pa.types.is_large_string(words.type) or pa.types.is_binary(words.type)
    each = pc.fill_null(pc.binary_length(words), 0).to_numpy() if text else np.full(len(words), 8)
    return 4 * len(cells) + int(used @ each.astype(np.int64))
