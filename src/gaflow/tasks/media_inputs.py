"""Pictures and sounds: how they become tokens.

A picture is cut into patches, row by row; a sound into frames, from its beginning to its end, or into patches of a
spectrogram (bands by time). Tokens beyond these ([CLS], registers, what a model was distilled by) come first and are
special, and so are the frames of silence by which a feature extractor fills up a sound.

The convention this file owns: only the trace knows how many tokens a model makes of an input. Until then an encoding
has none; `name_tokens` names them afterwards.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import MissingExtraError, UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.media import Image, Sound
from gaflow.tasks.input_reader import InputReader
from gaflow.tasks.targets import as_integer

__all__ = ["name_tokens", "read_pictures", "read_sounds"]

_MOST = 16  # special tokens before the patches


def read_pictures(reader: InputReader, items: Sequence[Any], names: Sequence[str]) -> list[Encoding]:
    """Pictures of Pillow's, files, or arrays (h, w, 3), (3, h, w) or (h, w) of bytes or of numbers from 0 to 1."""
    model, processor = reader.model, reader.processor
    found = []
    for item, name in zip(items, names, strict=True):
        picture, title = _picture(item, name)
        given = processor(images=picture, return_tensors="pt")
        values = given.get("pixel_values")
        if not isinstance(values, Tensor) or values.dim() != 4:
            raise UnsupportedModelError(f"{type(processor).__name__} makes no pixel values of a picture")
        pixels = _colours(values[0], processor)
        media = Image(pixels, _grid(model, pixels.shape[0], pixels.shape[1]))
        found.append(_encoding({"pixel_values": values[0].to(_dtype(model))}, media, title))
    return found


def read_sounds(reader: InputReader, items: Sequence[Any], names: Sequence[str]) -> list[Encoding]:
    """Sounds as (samples, rate), or as a dict with array and sampling_rate."""
    model, extractor = reader.model, reader.processor
    found = []
    for item, name in zip(items, names, strict=True):
        sound = _sound(item, name)
        wanted = getattr(extractor, "sampling_rate", sound.rate)
        if sound.rate != wanted:
            raise ValueError(f"{name} has {sound.rate} samples a second, but the model takes {wanted}; resample it")
        least = _least_samples(model)
        if len(sound.samples) < least:
            raise ValueError(f"{name} has {len(sound.samples)} samples, but a frame of the model takes {least}")
        given = extractor(sound.samples, sampling_rate=sound.rate, return_tensors="pt")
        main = getattr(model, "main_input_name", "input_values")
        key = main if main in given else next(iter(given))
        values = given[key][0]
        seconds = len(sound.samples) / sound.rate
        title = f"a sound of {seconds:.2f} s"
        found.append(_encoding({key: values.to(_dtype(model))}, sound, title))
    return found


def name_tokens(encoding: Encoding, t: int, model: Any) -> Encoding:
    """The encoding once the model has made `t` tokens of it."""
    media = encoding.media
    assert media is not None
    if isinstance(media, Image):
        return _name_patches(encoding, media, t)
    bands = _bands(model, t)
    if bands is not None:
        return _name_bands(encoding, media, t, *bands)
    return _name_frames(encoding, media, t, _stride(model, encoding, media, t))


def _encoding(inputs: dict[str, Any], media: Image | Sound, title: str) -> Encoding:
    """An encoding without tokens."""
    return Encoding(title, None, inputs, media=media)


def _name_patches(encoding: Encoding, media: Image, t: int) -> Encoding:
    rows, columns = media.grid
    if not 0 <= t - rows * columns <= _MOST:  # the config's patches are not those of the first layer
        rows = columns = next((n for n in range(math.isqrt(t), 0, -1) if t - n * n <= _MOST), 0)
    if not rows:
        raise UnsupportedModelError(f"the model makes {t} tokens of a picture, which are no grid of patches")
    extra = t - rows * columns
    tokens = _extra(extra) + tuple(f"row {r}, column {c}" for r in range(1, rows + 1) for c in range(1, columns + 1))
    segments = (-1,) * extra + (0,) * (rows * columns)
    image = Image(media.pixels, (rows, columns))
    return replace(encoding, tokens=tokens, offsets=((0, 0),) * t, segments=segments, media=image)


def _name_frames(encoding: Encoding, media: Sound, t: int, stride: float) -> Encoding:
    n = len(media.samples)
    spans = [(min(n, round(k * stride)), min(n, round((k + 1) * stride))) for k in range(t)]
    tokens = tuple(f"{_time(k * stride / media.rate)}-{_time((k + 1) * stride / media.rate)} s" for k in range(t))
    segments = tuple(0 if a < b else -1 for a, b in spans)
    return replace(encoding, tokens=tokens, offsets=tuple(spans), segments=segments)


def _name_bands(encoding: Encoding, media: Sound, t: int, bands: int, times: int, seconds: float) -> Encoding:
    extra, n = t - bands * times, len(media.samples)
    span = [
        (min(n, round(k * seconds * media.rate)), min(n, round((k + 1) * seconds * media.rate))) for k in range(times)
    ]
    tokens = tuple(
        f"band {b + 1}, {_time(k * seconds)}-{_time((k + 1) * seconds)} s" for b in range(bands) for k in range(times)
    )
    offsets = ((0, 0),) * extra + tuple(span[k] for _ in range(bands) for k in range(times))
    segments = tuple(0 if a < b else -1 for a, b in offsets)
    return replace(encoding, tokens=_extra(extra) + tokens, offsets=offsets, segments=segments)


def _time(seconds: float) -> str:
    return f"{seconds:.3f}"


def _extra(count: int) -> tuple[str, ...]:
    return tuple("[CLS]" if k == 0 else f"[extra {k}]" for k in range(count))


def _least_samples(model: Any) -> int:
    """How many samples the convolutions of a model make one frame of; 1 where they do not read samples."""
    kernels, strides = (getattr(model.config, name, None) or () for name in ("conv_kernel", "conv_stride"))
    n = 1
    for kernel, stride in reversed(list(zip(kernels, strides, strict=False))):
        n = (n - 1) * stride + kernel
    return n


def _stride(model: Any, encoding: Encoding, media: Sound, t: int) -> float:
    """Samples from one frame to the next."""
    steps = getattr(model.config, "conv_stride", None)
    if steps:
        return float(math.prod(steps))
    values = next(iter(encoding.inputs.values()))
    if isinstance(values, Tensor) and values.dim() == 1:
        return values.shape[0] / t
    hop = getattr(model.config, "hop_length", None) or 160  # samples of a column of a spectrogram, as Whisper's
    return hop * values.shape[-1] / t


def _bands(model: Any, t: int) -> tuple[int, int, float] | None:
    """Bands, times, and seconds from one time to the next, of models that cut spectrograms into patches."""
    config = model.config
    if not hasattr(config, "frequency_stride") or not hasattr(config, "time_stride"):
        return None
    bands = (config.num_mel_bins - config.patch_size) // config.frequency_stride + 1
    times = (config.max_length - config.patch_size) // config.time_stride + 1
    seconds = 0.01 * config.time_stride  # a column of the spectrogram is 10 ms
    return (bands, times, seconds) if 0 <= t - bands * times <= _MOST else None


def _picture(item: Any, name: str) -> tuple[Any, str]:
    """The picture in Pillow's terms, and what to call it."""
    pillow = _pillow()
    if isinstance(item, str | os.PathLike):
        try:
            with pillow.open(item) as opened:
                return opened.convert("RGB"), Path(item).name
        except FileNotFoundError:
            raise ValueError(f"{name}: there is no file {str(item)!r}; give a picture, its path, or an array") from None
        except (OSError, pillow.DecompressionBombError) as error:
            raise ValueError(f"{name}: {str(item)!r} is no picture that can be read ({error})") from error
    if isinstance(item, np.ndarray | Tensor):
        return pillow.fromarray(_bytes(np.asarray(item), name)), "a picture"
    if hasattr(item, "convert"):
        return item.convert("RGB"), "a picture"
    raise TypeError(f"{name} must be a picture of Pillow's, its path, or an array, not {type(item).__name__}")


def _bytes(values: np.ndarray, name: str) -> np.ndarray:
    """An array (h, w, 3) of bytes."""
    if values.ndim == 2:
        values = np.repeat(values[..., None], 3, -1)
    if values.ndim == 3 and values.shape[-1] != 3 and values.shape[0] == 3:
        values = values.transpose(1, 2, 0)
    if values.ndim != 3 or values.shape[-1] != 3 or not values.size:
        raise ValueError(f"{name} is an array of shape {values.shape}, not (h, w, 3), (3, h, w) or (h, w)")
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    if not np.issubdtype(values.dtype, np.floating) or not (values >= 0).all() or not (values <= 1).all():
        raise ValueError(f"{name} must hold bytes, or numbers from 0 to 1; it holds {values.dtype}")
    return np.ascontiguousarray((values * 255).round().astype(np.uint8))


def _colours(values: Tensor, processor: Any) -> np.ndarray:
    """Pixel values (c, h, w) as the colours (h, w, 3) that they stand for."""
    plain = values.float().cpu()
    if getattr(processor, "do_normalize", False):
        mean, std = (torch.tensor(getattr(processor, k)).reshape(-1, 1, 1) for k in ("image_mean", "image_std"))
        plain = plain * std + mean
    if not getattr(processor, "do_rescale", True):
        plain = plain / 255
    shown = (plain.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return np.ascontiguousarray(shown if shown.shape[2] == 3 else np.repeat(shown[..., :1], 3, -1))


def _grid(model: Any, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the patches that the config describes; one patch if it describes none."""
    inner = getattr(model.config, "vision_config", None)
    size: Any = getattr(model.config, "patch_size", None) or getattr(inner, "patch_size", None)
    high, wide = size if isinstance(size, list | tuple) and len(size) == 2 else (size, size)
    if not isinstance(high, int) or not isinstance(wide, int):
        return 1, 1
    return max(1, height // high), max(1, width // wide)


def _sound(item: Any, name: str) -> Sound:
    if isinstance(item, dict):
        item = (item.get("array"), item.get("sampling_rate"))
    if not isinstance(item, tuple) or len(item) != 2:
        raise TypeError(
            f"{name} must be (samples, rate), or a dict with array and sampling_rate, not {type(item).__name__}"
        )
    samples, rate = np.asarray(item[0]), as_integer(item[1])
    if rate is None or rate < 1:
        raise ValueError(f"{name}: the rate must be a whole number of samples in a second, not {item[1]!r}")
    if samples.ndim != 1 or not samples.size or not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(f"{name}: samples must be (n,) numbers of one channel, not {samples.dtype} {samples.shape}")
    if not np.isfinite(samples).all():
        raise ValueError(f"{name}: samples are not all finite")
    return Sound(samples.astype(np.float32), rate)


def _dtype(model: Any) -> torch.dtype:
    weight = next(model.parameters(), None)
    return torch.float32 if weight is None else weight.dtype


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError as error:
        raise MissingExtraError(f"pictures need Pillow ({error}); run: pip install 'gaflow[image]'") from error
    return PIL.Image
