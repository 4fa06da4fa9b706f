"""Manifests of data-set runs, changed by hand."""

import json

NEWER_FIELDS = ("config", "attention")  # of a model; the first manifests lack them


def edit_manifest(folder, change):
    """Let `change` edit the job that a folder's manifest describes."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest["job"])
    path.write_text(json.dumps(manifest, indent=1) + "\n")


def as_first_written(job):
    """Remove what the first version of gaflow did not record."""
    for name in NEWER_FIELDS:
        del job["model"][name]
    del job["model"]["tokenizer"]["settings"]
    del job["threads"]
    del job["processor"]
