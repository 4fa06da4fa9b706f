"""Small data sets as files of every kind."""

import gzip
import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

ROWS = [
    {"text": 'a "quoted", and\nbroken line', "label": 1, "other": 0.5},
    {"text": "NA", "label": 0, "other": 1.5},
    {"text": "2024-01-01", "label": 1, "other": 2.5},
    {"text": "  today's 今日は 👍🏽 ", "label": 0, "other": 3.5},
]


def write(path, rows=ROWS):
    table = pa.Table.from_pylist(rows)
    if ".parquet" in path.name:
        pq.write_table(table, path, row_group_size=2)
    elif ".csv" in path.name:
        pyarrow.csv.write_csv(table, path)
    else:
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path
