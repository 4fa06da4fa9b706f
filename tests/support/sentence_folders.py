"""Folders in the layout of sentence-transformers."""

import json

from tests.support.task_models import bert


def write_folder(path, *, modules, settings=None, encoder_settings=None, encoder_path=""):
    """A folder of a model; `modules` are pairs of a class name and a config, after the encoder."""
    encoder, tokenizer = bert("similarity")
    (path / encoder_path).mkdir(exist_ok=True)
    encoder.save_pretrained(path / encoder_path)
    tokenizer.save_pretrained(path / encoder_path)
    entries = [{"idx": 0, "name": "0", "path": encoder_path, "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, config) in enumerate(modules, start=1):
        folder = f"{number}_{kind}"
        entries.append(
            {"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.models.{kind}"}
        )
        (path / folder).mkdir()
        (path / folder / "config.json").write_text(json.dumps(config))
    (path / "modules.json").write_text(json.dumps(entries))
    if settings is not None:
        (path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    if encoder_settings is not None:
        (path / encoder_path / "sentence_bert_config.json").write_text(json.dumps(encoder_settings))
    return encoder, tokenizer
