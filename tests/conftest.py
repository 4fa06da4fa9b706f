import torch

torch.set_num_threads(1)  # the models here are tiny, and test processes share the cores
