"""Pictures and sounds: how they become tokens.

A picture is cut into patches, row by row; a sound into frames, from its beginning to its end, or into patches of a
spectrogram (bands by time). Tokens beyond these ([CLS], registers, distillation tokens) come first and are special, and
so are the frames of silence by which a feature extractor fills up a sound.

The convention this file owns: only a forward pass shows how many tokens a model makes of an input. Until then an
encoding has no tokens; `name_tokens` gives it some.
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

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, UnsupportedModelError
from gaflow.extras import need
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.media import Image, Sound
from gaflow.inputs.transformers_types import ModelConfig, PretrainedModel, Processor
from gaflow.tasks.input_reader import InputReader
from gaflow.tasks.targets import as_integer

_MOST_SPECIAL_TOKENS = 16  # before the patches
_SECONDS_PER_COLUMN = 0.01  # of a spectrogram that is cut into patches
_SAMPLES_PER_COLUMN = 160  # of a spectrogram, as Whisper's, if the config does not say


def read_pictures(reader: InputReader, pictures: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Pictures of Pillow, files, or arrays (h, w, 3), (3, h, w) or (h, w) of bytes or of numbers from 0 to 1."""
    encodings = []
    for item, name in zip(pictures, names, strict=True):
        picture, title = _open_picture(item, name)
        output = reader.processor(images=picture, return_tensors="pt")
        batch = output.get("pixel_values")
        if not isinstance(batch, Tensor) or batch.dim() != 4:
            raise UnsupportedModelError(f"{type(reader.processor).__name__} makes no pixel values of a picture")
        values = batch[0]
        pixels = _colours(values, reader.processor)
        height, width, _ = pixels.shape
        image = Image(pixels, _patch_grid(reader.model.config, height, width))
        inputs = {"pixel_values": values.to(_dtype_of(reader.model))}
        encodings.append(Encoding(title, None, inputs, media=image))
    return encodings


def read_sounds(reader: InputReader, sounds: Sequence[object], names: Sequence[str]) -> list[Encoding]:
    """Sounds as (samples, rate), or as a dict with array and sampling_rate."""
    extractor = reader.processor
    encodings = []
    for item, name in zip(sounds, names, strict=True):
        sound = _check_sound(item, name)
        rate = getattr(extractor, "sampling_rate", sound.rate)
        if sound.rate != rate:
            raise ArgumentError(
                Argument(name), f" has {sound.rate} samples a second, but the model takes {rate}; resample it"
            )
        least = _least_samples(reader.model.config)
        if len(sound.samples) < least:
            raise ArgumentError(
                Argument(name), f" has {len(sound.samples)} samples, but a frame of the model takes {least}"
            )
        output = extractor(sound.samples, sampling_rate=sound.rate, return_tensors="pt")
        key = getattr(reader.model, "main_input_name", "input_values")
        if key not in output:
            key = next(iter(output))
        inputs = {key: output[key][0].to(_dtype_of(reader.model))}
        title = f"a sound of {len(sound.samples) / sound.rate:.2f} s"
        encodings.append(Encoding(title, None, inputs, media=sound))
    return encodings


def name_tokens(encoding: Encoding, count: int, model: PretrainedModel) -> Encoding:
    """The encoding of a picture or sound once the model has made `count` tokens of it."""
    media = encoding.media
    if isinstance(media, Image):
        return _name_patches(encoding, media, count)
    assert media is not None
    return _name_intervals(encoding, media, count, model.config)


def _name_patches(encoding: Encoding, image: Image, count: int) -> Encoding:
    rows, columns = image.grid
    if not 0 <= count - rows * columns <= _MOST_SPECIAL_TOKENS:  # the config's patches are not those of the first layer
        rows = columns = math.isqrt(count)
        if count - rows * columns > _MOST_SPECIAL_TOKENS:
            raise UnsupportedModelError(f"the model makes {count} tokens of a picture, which are no grid of patches")
    tokens = _special_tokens(count - rows * columns)
    segments = (-1,) * len(tokens) + (0,) * (rows * columns)
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            tokens.append(f"row {row}, column {column}")
    return replace(
        encoding,
        tokens=tuple(tokens),
        offsets=((0, 0),) * count,
        segments=segments,
        media=replace(image, grid=(rows, columns)),
    )


def _name_intervals(encoding: Encoding, sound: Sound, count: int, config: ModelConfig) -> Encoding:
    """Frames, or patches of a spectrogram: each stands for an interval of the sound, and for a band of it."""
    bands = [""]
    times = count
    step = _samples_per_frame(config, encoding, count)
    if hasattr(config, "frequency_stride") and hasattr(config, "time_stride"):
        band_count = (config.num_mel_bins - config.patch_size) // config.frequency_stride + 1
        time_count = (config.max_length - config.patch_size) // config.time_stride + 1
        if 0 <= count - band_count * time_count <= _MOST_SPECIAL_TOKENS:
            bands = [f"band {band}, " for band in range(1, band_count + 1)]
            times = time_count
            step = _SECONDS_PER_COLUMN * config.time_stride * sound.rate
    tokens = _special_tokens(count - len(bands) * times)
    offsets = [(0, 0)] * len(tokens)
    samples = len(sound.samples)
    for band in bands:
        for k in range(times):
            start = k * step
            end = (k + 1) * step
            seconds = f"{start / sound.rate:.3f}-{end / sound.rate:.3f}"
            tokens.append(f"{band}{seconds} s")
            offsets.append((min(samples, round(start)), min(samples, round(end))))
    segments = tuple(0 if start < end else -1 for start, end in offsets)  # intervals after the sound are special
    return replace(encoding, tokens=tuple(tokens), offsets=tuple(offsets), segments=segments)


def _special_tokens(count: int) -> list[str]:
    return ["[CLS]" if k == 0 else f"[extra {k}]" for k in range(count)]


def _least_samples(config: ModelConfig) -> int:
    """How many samples the convolutions of a model make one frame of; 1 where they do not read samples."""
    kernels = getattr(config, "conv_kernel", None) or ()
    strides = getattr(config, "conv_stride", None) or ()
    samples = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=False):
        samples = (samples - 1) * stride + kernel
    return samples


def _samples_per_frame(config: ModelConfig, encoding: Encoding, count: int) -> float:
    strides = getattr(config, "conv_stride", None)
    if strides:
        return float(math.prod(strides))
    values = next(iter(encoding.inputs.values()))
    if values.dim() == 1:  # samples
        return values.shape[0] / count
    samples_per_column = getattr(config, "hop_length", None) or _SAMPLES_PER_COLUMN
    return samples_per_column * values.shape[-1] / count


def _open_picture(item: Any, name: str) -> tuple[Any, str]:
    """The picture as one of Pillow, and what to call it."""
    need("PIL.Image", "image", "pictures need Pillow")
    import PIL.Image

    if isinstance(item, str | os.PathLike):
        try:
            with PIL.Image.open(item) as opened:
                return opened.convert("RGB"), Path(item).name
        except FileNotFoundError:
            raise ArgumentError(
                Argument(name), f": there is no file {str(item)!r}; give a picture, its path, or an array"
            ) from None
        except (OSError, PIL.Image.DecompressionBombError) as error:
            raise ArgumentError(Argument(name), f": {str(item)!r} is no picture that can be read ({error})") from error
    if isinstance(item, np.ndarray | Tensor):
        item = PIL.Image.fromarray(_as_bytes(np.asarray(item), name))
    if hasattr(item, "convert"):
        return item.convert("RGB"), "a picture"
    raise ArgumentTypeError(
        Argument(name), f" must be a picture of Pillow, its path, or an array, not {type(item).__name__}"
    )


def _as_bytes(values: np.ndarray, name: str) -> np.ndarray:
    """An array (h, w) or (h, w, 3) of bytes."""
    shape = values.shape
    if values.ndim == 3 and shape[-1] != 3:
        values = np.moveaxis(values, 0, -1)
    if not values.size or (values.ndim != 2 and values.shape[2:] != (3,)):
        raise ArgumentError(Argument(name), f" is an array of shape {shape}, not (h, w, 3), (3, h, w) or (h, w)")
    if values.dtype != np.uint8:
        in_range = (values >= 0) & (values <= 1)
        if not np.issubdtype(values.dtype, np.floating) or not in_range.all():
            raise ArgumentError(Argument(name), f" must hold bytes, or numbers from 0 to 1; it holds {values.dtype}")
        values = (values * 255).round().astype(np.uint8)
    return np.ascontiguousarray(values)


def _colours(values: Tensor, processor: Processor) -> np.ndarray:
    """Pixel values (c, h, w) as the colours (h, w, 3) that they stand for."""
    plain = values.float().cpu()
    if getattr(processor, "do_normalize", False):
        mean = torch.tensor(processor.image_mean).reshape(-1, 1, 1)
        std = torch.tensor(processor.image_std).reshape(-1, 1, 1)
        plain = plain * std + mean
    if not getattr(processor, "do_rescale", True):
        plain = plain / 255
    pixels = (plain.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    if pixels.shape[2] != 3:
        pixels = np.repeat(pixels[..., :1], 3, -1)
    return np.ascontiguousarray(pixels)


def _patch_grid(config: ModelConfig, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the patches that the config describes; one patch if it describes none."""
    vision_config = getattr(config, "vision_config", None)
    size = getattr(config, "patch_size", None) or getattr(vision_config, "patch_size", None)
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, list | tuple) or len(size) != 2:
        return 1, 1
    return max(1, height // size[0]), max(1, width // size[1])


def _check_sound(item: Any, name: str) -> Sound:
    if isinstance(item, dict):
        item = (item.get("array"), item.get("sampling_rate"))
    if not isinstance(item, tuple) or len(item) != 2:
        kind = type(item).__name__
        raise ArgumentTypeError(
            Argument(name), f" must be (samples, rate), or a dict with array and sampling_rate, not {kind}"
        )
    samples = np.asarray(item[0])
    rate = as_integer(item[1])
    if rate is None or rate < 1:
        raise ArgumentError(
            Argument(name), f": the rate must be a whole number of samples in a second, not {item[1]!r}"
        )
    if samples.ndim != 1 or not samples.size or not np.issubdtype(samples.dtype, np.floating):
        kind = f"{samples.dtype} {samples.shape}"
        raise ArgumentError(Argument(name), f": samples must be (n,) numbers of one channel, not {kind}")
    if not np.isfinite(samples).all():
        raise ArgumentError(Argument(name), ": samples are not all finite")
    return Sound(samples.astype(np.float32), rate)


def _dtype_of(model: PretrainedModel) -> torch.dtype:
    return next(model.parameters()).dtype
