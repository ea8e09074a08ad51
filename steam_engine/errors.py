"""The one base class of every mistake a user can be told about, and the engine's own kinds.

This file imports nothing, so that every package can raise errors of the same family.
"""


class AmendError(Exception):
    """A problem with a message for the user: what is wrong, and what to do about it."""


class ModelLoadError(AmendError):
    """The model cannot be found, read or edited."""


class NotEnoughMemoryError(ModelLoadError):
    """The model does not fit into the memory that is free."""


class ModelIntegrityError(AmendError):
    """A file of an embedded model is not the file that was shipped."""


class UnsupportedModelError(AmendError):
    """The architecture cannot be edited; the message says what would work."""


class EncoderDecoderError(UnsupportedModelError):
    """The model has an encoder; only decoder-only language models can be edited."""


class MultimodalModelError(UnsupportedModelError):
    """The model wraps a language model together with a vision or audio tower."""


class QuantisedModelError(UnsupportedModelError):
    """The MLP weights are packed 4- or 8-bit numbers."""


class MixtureOfExpertsError(UnsupportedModelError):
    """The MLPs are split into experts."""


class EditError(AmendError):
    """The edit was tried and could not be carried out; nothing has changed."""


class EditCancelledError(AmendError):
    """The user stopped the edit; nothing has changed."""


class JournalError(AmendError):
    """The journal is damaged, cannot be written, or belongs to another base model."""


class ImportConflictError(JournalError):
    """Edits to be imported are of facts that were edited here already; nothing has changed."""


class NothingToUndoError(AmendError):
    """There is no edit to undo, or none to redo."""


class ExportError(AmendError):
    """The checkpoint could not be written or did not pass its check; nothing is left behind."""


class CorpusError(AmendError):
    """The text that the statistics shall be taken from cannot be read, or is too short."""


class CaseFileError(AmendError):
    """The file of evaluation cases cannot be read, or has no case in it."""


class UnknownMethodError(AmendError):
    """There is no editing method of that name."""


class EvaluationError(AmendError):
    """The evaluation cannot be run or resumed as asked; results that are there stay untouched."""
