"""The Python kernel: everything that `storage.kernel.scan.Kernel` asks for."""

from typing import Final

from crc32c import crc32c

from storage.kernel.python.dedupe_python import mark_kept, move_records, put_keys
from storage.kernel.python.fold_python import PythonFold
from storage.kernel.python.records_python import check_records, find_record, walk_records
from storage.kernel.python.scan_python import (
    count_up_to,
    crc_name,
    find_batch,
    lead_batch,
    scan_batches,
    walk_headers,
)

__all__ = (
    "NAME",
    "check_records",
    "count_up_to",
    "crc32c",
    "crc_name",
    "find_batch",
    "find_record",
    "lead_batch",
    "mark_kept",
    "move_records",
    "new_fold",
    "put_keys",
    "scan_batches",
    "walk_headers",
    "walk_records",
)

NAME: Final = "python"
new_fold = PythonFold
