"""The records that stages hand to each other. All are frozen, and refuse fields that they do not know."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

BASE = "base"
"""Model name under which every engine serves the base without an adapter."""

MessageRole = Literal["system", "user", "assistant"]
RunStatus = Literal["finished", "max_steps", "repeated", "failed"]
RolloutStatus = Literal["finished", "infrastructure"]
StepError = Literal["parse", "execution", "repeated"]
Prompt = Literal["full", "compact"]
History = Literal["summarised", "full"]
Operation = Literal["copy", "page", "difference", "smaller", "larger", "same", "less"]


class Record(BaseModel):
    """Base of all records: immutable, strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(Record):
    """One chat message, exactly as it was sent to a model."""

    role: MessageRole
    content: str


CODE_TAGS = ("<code>", "</code>")
"""Opening and closing tag of an action. What is stored, trained and served holds both."""


class Evidence(Record):
    """A fact that a question needs, known for the embedded questions and 2WikiMultihopQA's: for a scripted teacher."""

    page: str
    relation: str
    value: str
    """The fact as it literally stands in the page."""
    query: str
    """The sub-question that asks for this fact."""


class Support(Record):
    """A text that a dataset names as evidence for an answer."""

    page: str
    text: str


class Question(Record):
    """A question with its gold answer."""

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)
    aliases: tuple[str, ...] = ()
    """Other texts that are equally right."""
    split: str = "train"
    kind: str | None = None
    """For reports only, such as `two_hop`."""
    wording: int | None = None
    """Which of several phrasings of the same question this is (embedded encyclopedia only)."""
    evidence: tuple[Evidence, ...] = ()
    supporting: tuple[Support, ...] = ()
    """What the answer rests on, where the dataset says so; shows where a failure began, and is hidden from models."""
    operation: Operation | None = None
    """How the answer follows from the evidence."""

    @property
    def golds(self) -> tuple[str, ...]:
        """The gold answer and its aliases."""
        return (self.answer, *self.aliases)


class Verdict(Record):
    """The grade of a final answer."""

    exact_match: bool
    """Official exact match: equal to a gold after normalisation."""
    f1: float
    """Official token F1 against the closest gold, 0 to 1."""
    match: bool
    """What a careful person would accept: exact match, or the same number, date or name in other words."""
    reason: str


UNGRADED = Verdict(exact_match=False, f1=0.0, match=False, reason="not graded")


class Call(Record):
    """One model call: what the model saw, what it wrote, and what came of it."""

    id: str
    index: int
    """Position inside its agent run, from 0."""
    messages: tuple[Message, ...]
    completion: str
    """The text as stored, shown to later steps and trained: with its closing tag, without the end-of-turn token."""
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seed: int
    temperature: float
    model: str
    """What answered: `base`, or an adapter version such as `page_search@3`."""
    seconds: float
    """Wall clock from request to reply."""
    code: str | None = None
    """The code found in the completion, or None if there was none."""
    observation: str | None = None
    """What the agent was shown in return; None for the last step of a run."""
    error: StepError | None = None


class AgentRun(Record):
    """One role's run inside a rollout: its task, its steps, its report."""

    id: str
    role: str
    parent_call: str | None
    """The call whose code started this run; None for the root."""
    task: str
    status: RunStatus
    report: str
    calls: tuple[Call, ...]
    prompt: Prompt | None = None
    """Which of the role's prompts it had, if not the rollout's."""


class Rollout(Record):
    """One run of a team on one question."""

    id: str
    question: Question
    sample: int
    """Which of k samples of the question, from 0."""
    seed: int
    round: int
    """Turn of the wheel that collected it; 0 is a teacher's warm start."""
    status: RolloutStatus
    answer: str
    verdict: Verdict
    runs: tuple[AgentRun, ...]
    """All agent runs, in the order in which they started; the root first."""
    seconds: float
    failure: str = ""
    """What failed, when the status is `infrastructure`."""
    prompt: Prompt
    history: History


class Example(Record):
    """One training row of a role: what one call was sent, and what it wrote.

    The fields `prompt` and `completion` are TRL's conversational prompt-completion format.
    """

    role: str
    prompt: tuple[Message, ...] = Field(min_length=1)
    """The messages of the call."""
    completion: tuple[Message, ...] = Field(min_length=1, max_length=1)
    """What the model wrote; the only message that bears the loss."""
    weight: float = Field(1.0, ge=1e-6, le=1e6)
    """Of each token's loss; the mean over a role's rows is 1."""
    question: str
    """Id of the question, as `rollout`, `run` and `call`: where the row comes from."""
    rollout: str
    run: str
    call: str
    salvaged: bool = False
    """The final answer was wrong, and the run's own report is known to be right."""


class Pair(Record):
    """A good and a bad step in the same situation, in TRL's preference format."""

    role: str
    prompt: tuple[Message, ...] = Field(min_length=1)
    chosen: tuple[Message, ...] = Field(min_length=1, max_length=1)
    rejected: tuple[Message, ...] = Field(min_length=1, max_length=1)
    question: str
    chosen_rollout: str
    chosen_call: str
    rejected_rollout: str
    rejected_call: str


class Mark(Record):
    """A step and whether it was a good one, in TRL's unpaired preference format."""

    role: str
    prompt: tuple[Message, ...] = Field(min_length=1)
    completion: tuple[Message, ...] = Field(min_length=1, max_length=1)
    label: bool
    question: str
    rollout: str
    call: str


class DatasetCard(Record):
    """Where training rows came from, and what was dropped on the way."""

    format_version: Literal[3] = 3
    rounds: tuple[int, ...]
    prompts: dict[str, Prompt]
    """Which of its prompts each role had."""
    history: History
    rows: dict[str, int]
    """By role."""
    calls: dict[str, int]
    """Calls seen, by role."""
    dropped: dict[str, int]
    """Calls dropped, by `role.rule`."""
    kinds: dict[str, int]
    """Kept rollouts by kind of question."""
    held_out: int = 0
    """Questions that rows were kept apart from."""
    pairs: dict[str, int] = {}
    """Good and bad steps in the same situation, by role."""
    marks: dict[str, int] = {}
    """Steps marked good or bad, by role."""
    effective: dict[str, float] = {}
    """Effective number of rows by role: (sum of weights)^2 / sum of squared weights (Kish)."""
    command: str = ""
    """What made it."""
    files: dict[str, str] = {}
    """SHA-256 of the files beside it, as they were written."""


class AdapterCard(Record):
    """What an adapter is and where it came from; written last, so that its existence means the adapter is whole."""

    format_version: Literal[1] = 1
    role: str
    version: int
    base: str
    """The model as the user named it."""
    base_hash: str
    """Fingerprint of the base's weights and tokenizer; an adapter is only served on the base it was trained on."""
    prompt: Prompt
    history: History
    rank: int
    alpha: int
    learning_rate: float
    steps: int
    rows: int
    method: str = "sft"
    parents: tuple[str, ...] = ()
    """Adapters that this one was trained on top of."""
    passes: float = 0.0
    """How often each row was seen, on average."""
    too_long: int = 0
    """Rows left out because they were longer than train.max_tokens."""
    trained_tokens: int
    """Tokens of the rows that bear loss."""
    first_loss: float
    last_loss: float
    """Mean over the last tenth of the steps."""
    seconds: float
    dataset: str
    dataset_hash: str
    weights_hash: str
    """SHA-256 of adapter_model.safetensors."""
    created: str
    """UTC, ISO 8601."""
    versions: dict[str, str]
    """Packages that made it, name to version."""

    @property
    def name(self) -> str:
        """`role@version`, the name under which it is served."""
        return f"{self.role}@{self.version}"
