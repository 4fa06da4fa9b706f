"""Names for the objects of Transformers that gaflow takes as they are.

Any object that behaves like the one named will do, and importing the classes themselves would load Transformers. So the
names stand for any object and only tell the reader what to expect.
"""

from typing import Any, TypeAlias

PretrainedModel: TypeAlias = Any  # transformers.PreTrainedModel
ModelConfig: TypeAlias = Any  # transformers.PretrainedConfig
ModelOutput: TypeAlias = Any  # transformers.utils.ModelOutput
Tokenizer: TypeAlias = Any  # transformers.PreTrainedTokenizerBase
Processor: TypeAlias = Any  # a tokenizer, image processor or feature extractor
