"""The mistakes a person can make in a conversation; each message is one sentence that says what to do."""

from __future__ import annotations

from steam_engine.errors import AmendError


class AssistantError(AmendError):
    """The family of the assistant's own messages."""


class UnknownCommandError(AssistantError):
    """A slash command that does not exist."""


class CommandFormError(AssistantError):
    """A command that exists, with arguments that it does not understand."""


class TextTooLongError(AssistantError):
    """More characters than a message or an edit may have."""


class EmptyMessageError(AssistantError):
    """Nothing was said."""


class EmptyEditError(AssistantError):
    """An edit without a sentence, or with an empty part."""


class QuestionAsEditError(AssistantError):
    """A question where a statement is needed."""


class NotAFactError(AssistantError):
    """A sentence in which no subject, relation and object can be told apart."""


class ForbiddenCharacterError(AssistantError):
    """Markup or control characters in an edit."""


class AlreadySoError(AssistantError):
    """The model already answers with the new object."""


class NothingPendingError(AssistantError):
    """/apply or /cancel with no proposal waiting."""


class ExportNameError(AssistantError):
    """A name that cannot be the name of an export."""


class ExportExistsError(AssistantError):
    """An export of that name is already there."""


class ExportFormatError(AssistantError):
    """A format that cannot be exported to."""


class WorkspaceError(AssistantError):
    """The workspace cannot be created, or another process is using it."""


class OptionError(AssistantError):
    """An option on the command line with a value that does not make sense."""


class HalfDoneError(AssistantError):
    """A change is in the weights and in the journal, and not among the known facts."""


class StoppedError(AssistantError):
    """The person stopped what was waiting for its turn; nothing has changed."""
