"""Data-set runs: texts of any number -> Parquet shards and a manifest, resumable at any moment.

    DIR/part-00000.parquet ...   one row for each text and method, in the order of the data set
    DIR/manifest.json            the job, what is done so far, a checksum for each shard; nothing that depends on time
    DIR/.part-00003.unfinished   while a run is stopped: texts of a shard that are done (`gaflow.jobs.unfinished`)
    DIR/timings.jsonl            when each shard was computed, seconds of each step, and by which worker or how many

The columns (also `gaflow.jobs.schema`); those marked * are all that a file from elsewhere needs, with `tokens` or
`offsets`:

    row           int64           number of the text's row in the data set, from 0
    text *        string          as the model read it
    pair          string          the second text, or null
    text_hash     string          SHA-256 of text and pair, by which rows of one text are told
    method *      string          name, and settings that are not the defaults
    tokens *      list<string>    (t,) as the tokenizer shows them
    offsets *     list<list<int>> (t,) of [start, end) in characters of the text, or of the pair in segment 1
    segments      list<int8>      (t,) 0: text, 1: pair, -1: special
    special_mask  list<bool>      (t,) tokens that the tokenizer added
    scores *      list<double>    (t,)
    target        int32           the class explained
    contrast      int32           the class that is subtracted (-1: the mean of all others), or null
    label         string          of the target
    probability   double          of the target, or null for regression
    output        double          the explained logit or difference of logits
    prediction    string          label of the largest logit
    logits        list<double>    (c,)
    gold          int32           class of the data set's label, or null
    gold_label    string          the model's name for it
    truncated     bool            the model read only the beginning
    facts         string          JSON: what else the method knows
    certificate   string          JSON: how exact the flow is; null for other methods
    error         string          why there are no scores, or null; then everything from `tokens` on but `gold` is null

The convention this room owns: **a shard is the unit of everything.** Shard k holds the k-th `shard_size` texts
whatever happened before, its batches are made of its own texts alone, and it is there as a whole or not at all. So
a killed run that is started again in the same environment repeats at most one shard, and ends with the same bytes as
one that was left alone; one that was stopped repeats at most a batch. Workers may be at several shards at the same
time, all of which a killed run repeats. `gaflow.jobs.identity` says which runs may continue in a folder.
"""

from gaflow.jobs.local_engine import Local
from gaflow.jobs.ray_engine import Ray
from gaflow.jobs.run import ENGINES, Outcome, attribute
from gaflow.jobs.schema import SCHEMA
from gaflow.jobs.stored import Stored, read_attributions

__all__ = ["ENGINES", "SCHEMA", "Local", "Outcome", "Ray", "Stored", "attribute", "read_attributions"]
