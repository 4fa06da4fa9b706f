"""An example of a package that adds a method, a task and a model adapter to gaflow."""

from dataclasses import dataclass

from gaflow.methods import MethodInfo, Scores
from gaflow.models.adapters import SOFTMAXES
from gaflow.models.tracing import Trace
from gaflow.tasks import ClassificationHead, Task
from gaflow.tasks.text_inputs import read_texts


@dataclass(frozen=True)
class LastAttention:
    """The attention that each token gets in the last layer, averaged over heads and over the tokens that pay it."""

    name: str = "last_attention"
    info = MethodInfo(
        family="attention",
        signed=False,
        class_specific=False,
        passes="1 forward",
        reference="an example",
    )

    def __call__(self, trace: Trace) -> Scores:
        mask = trace.mask.double()  # (b, t)
        attention = trace.attention[:, -1].double().mean(1)  # (b, t, t): from token i to token j
        received = (attention * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return Scores(received * mask)


def head(_model, _tokenizer) -> ClassificationHead:
    """The two logits of BERT's second pre-training task."""
    return ClassificationHead(labels=("next", "random"), link="softmax")


LAST_ATTENTION = LastAttention()
NEXT_SENTENCE = Task(
    loader="AutoModelForNextSentencePrediction",
    endings=("ForNextSentencePrediction",),
    read=read_texts,
    head=head,
)
ADAPTER = SOFTMAXES  # for models of the type "example_model", which return no attention
