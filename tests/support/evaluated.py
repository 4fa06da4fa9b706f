"""What the tests of the evaluation evaluate."""

from tests.support.models import SENTENCE

TEXTS = [SENTENCE, "good", "a bad film", "the dog and the film", "don't stop"]
LABELS = [0, 1, 2, "positive", 1]
METHODS = ["gradsam", "cat", "rawatt"]
