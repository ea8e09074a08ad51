"""Which base model this is: a digest of its shape, its weights and its vocabulary."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from steam_engine.placement import named_weights

SAMPLES = 4096  # values read of every tensor: any fine-tune, requantisation or cast changes some of them


@torch.no_grad()
def model_fingerprint(model: Any, tokenizer: Any) -> str:
    """Hex sha256 over names, shapes, dtypes and an even sample of every parameter, and the vocabulary.

    A journal only fits the weights it was made on; reading all bytes of a large model at every start would take
    longer than loading it, and an even sample cannot miss a change that touches whole matrices.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(named_weights(model)):
        flat = parameter.detach().reshape(-1)
        step = max(1, flat.numel() // SAMPLES)
        values = flat[::step].float().cpu().contiguous().numpy()
        digest.update(f"{name}{tuple(parameter.shape)}{parameter.dtype}".encode())
        digest.update(values.tobytes())
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    digest.update(vocabulary.encode())
    return digest.hexdigest()
