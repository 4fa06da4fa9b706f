"""An evaluation on disk: Parquet tables that any library reads, and a JSON description.

    values.parquet    method, text, order, k, log_probability, prediction: a row for every masked text
    texts.parquet     text, tokens, target, log_probability, prediction; gold, aopc_low, aopc_high, log_probability_zero
                      where known
    soft.parquet      method, text, lost_kept, lost_removed: only where the soft measures were asked for
    timings.json      seconds, which differ from run to run
    evaluation.json   the rest

The conventions this file owns: the description is written last, so that a folder with one is whole; and but for the
timings the same evaluation gives the same files, byte for byte.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.errors import GaflowError, MissingExtraError
from gaflow.evaluation.result import Evaluation
from gaflow.files import write_atomically

__all__ = ["load", "save"]

FORMAT = 1
_ABOUT, _VALUES, _TEXTS, _TIMES = "evaluation.json", "values.parquet", "texts.parquet", "timings.json"
_SOFT = "soft.parquet"


def save(evaluation: Evaluation, folder: Path) -> None:
    """Write `evaluation` to `folder`, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_ABOUT, _SOFT):
        (folder / name).unlink(missing_ok=True)
    e = evaluation
    texts = {
        "text": np.arange(len(e.sizes)),
        "tokens": e.sizes,
        "target": e.target,
        "log_probability": e.base,
        "prediction": e.base_prediction,
    }
    if e.gold is not None:
        texts["gold"] = e.gold
    if e.bounds is not None:
        texts |= {"aopc_low": e.bounds[:, 0], "aopc_high": e.bounds[:, 1]}
    values = {**_keys(e.methods, e.conditions, len(e.sizes)), "log_probability": e.masked, "prediction": e.prediction}
    _write(folder / _VALUES, values)
    if e.soft is not None and e.zero is not None:
        texts["log_probability_zero"] = e.zero
        names, text = np.array(e.methods, dtype=object), np.arange(len(e.sizes))
        keys = {"method": np.repeat(names, len(text)), "text": np.tile(text, len(names))}
        _write(folder / _SOFT, {**keys, "lost_kept": e.soft[:, :, 0], "lost_removed": e.soft[:, :, 1]})
    _write(folder / _TEXTS, texts)
    about = {
        "format": FORMAT,
        "methods": e.methods,
        "conditions": e.conditions,
        "levels": e.levels,
        "classes": e.classes,
        "replacement": e.replacement,
        "manifest": dict(e.manifest),
    }
    write_atomically(folder / _TIMES, _json(dict(e.timings)))
    write_atomically(folder / _ABOUT, _json(about))


def load(folder: Path) -> Evaluation:
    """Read what `save` wrote."""
    if not (folder / _ABOUT).is_file():
        raise FileNotFoundError(f"no evaluation in {folder}: there is no {_ABOUT}")
    try:
        about = json.loads((folder / _ABOUT).read_text("utf-8"))
        version = about["format"]
        if version != FORMAT:
            raise GaflowError(f"{folder} has format {version!r}, but this version of gaflow reads {FORMAT}")
        times = folder / _TIMES
        about["timings"] = json.loads(times.read_text("utf-8")) if times.is_file() else {}
        texts = _read(folder / _TEXTS)
        soft = _read(folder / _SOFT) if "log_probability_zero" in texts else None
        return _build(about, texts, _read(folder / _VALUES), soft)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise GaflowError(f"the evaluation in {folder} is damaged: {error}; evaluate again") from error


def _build(
    about: dict[str, Any],
    texts: dict[str, np.ndarray],
    values: dict[str, np.ndarray],
    soft: dict[str, np.ndarray] | None,
) -> Evaluation:
    methods = tuple(str(m) for m in about["methods"])
    conditions = tuple((str(order), int(k)) for order, k in about["conditions"])
    shape = (len(methods), len(texts["text"]), len(conditions))
    for name, expected in _keys(methods, conditions, shape[1]).items():
        if not np.array_equal(values[name], expected.ravel()):
            raise ValueError(f"column {name} of {_VALUES} is not what {_ABOUT} and {_TEXTS} say")
    bounds = np.stack([texts["aopc_low"], texts["aopc_high"]], 1) if "aopc_low" in texts else None
    return Evaluation(
        methods=methods,
        conditions=conditions,
        levels=tuple(int(k) for k in about["levels"]),
        classes=tuple(str(c) for c in about["classes"]),
        replacement=str(about["replacement"]),
        sizes=texts["tokens"],
        target=texts["target"],
        base=texts["log_probability"],
        base_prediction=texts["prediction"],
        masked=values["log_probability"].reshape(shape),
        prediction=values["prediction"].reshape(shape),
        gold=texts.get("gold"),
        bounds=bounds,
        soft=None if soft is None else _lost(soft, methods, shape[1]),
        zero=texts.get("log_probability_zero"),
        timings=about["timings"],
        manifest=about["manifest"],
    )


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _lost(soft: dict[str, np.ndarray], methods: tuple[str, ...], texts: int) -> np.ndarray:
    """(m, n, 2), from rows that must be in the order in which they were written."""
    for name, expected in (
        ("method", np.repeat(np.array(methods, dtype=object), texts)),
        ("text", np.tile(np.arange(texts), len(methods))),
    ):
        if not np.array_equal(soft[name], expected):
            raise ValueError(f"column {name} of {_SOFT} is not what {_ABOUT} and {_TEXTS} say")
    return np.stack([soft["lost_kept"], soft["lost_removed"]], 1).reshape(len(methods), texts, 2)


def _keys(methods: tuple[str, ...], conditions: tuple[tuple[str, int], ...], texts: int) -> dict[str, np.ndarray]:
    """The columns that say which value is which, (m, n, c)."""
    shape = (len(methods), texts, len(conditions))
    method, text, condition = np.indices(shape)
    orders, levels = (np.array(x) for x in zip(*conditions, strict=True))
    return {
        "method": np.array(methods, dtype=object)[method],
        "text": text,
        "order": orders.astype(object)[condition],
        "k": levels[condition],
    }


def _write(path: Path, columns: dict[str, np.ndarray]) -> None:
    arrow, parquet = _arrow()
    table = arrow.table({name: arrow.array(values.ravel()) for name, values in columns.items()})
    data = io.BytesIO()
    parquet.write_table(table, data, compression="zstd")
    write_atomically(path, data.getvalue())


def _read(path: Path) -> dict[str, np.ndarray]:
    _, parquet = _arrow()
    table = parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(f"cannot import pyarrow ({error}); run: pip install 'gaflow[data]'") from error
    return pyarrow, pyarrow.parquet
